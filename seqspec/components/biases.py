"""Positions as biases of self-attention scores: a number for each distance and head."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from seqspec.components.base import Count, Finding, Findings
from seqspec.components.positions import Position
from seqspec.ops import masks
from seqspec.ops.base import Op
from seqspec.ops.biases import AlibiBias
from seqspec.ops.biases import RelativeBias as RelativeBiasOp


class Alibi(Position):
    """Adds −slope · distance to the scores of every self-attention, with a slope for each head (ALiBi)."""

    acts = True

    kind: Literal["alibi"]

    def bias(self, heads: int, causal: bool) -> Op:
        return AlibiBias(heads)


class RelativeBias(Position):
    """Adds a learned number for each head and distance to the scores of every self-attention, as in T5.

    Half of the buckets hold one distance each, the others grow up to `max_distance`, and the last takes everything
    beyond. Layers with equal settings share one table of the stack, `embed_relative`.
    """

    acts = True

    kind: Literal["relative_bias"]
    buckets: Annotated[int, Field(ge=2)] = 32
    """Rows of the table. If a layer sees both sides, half of them are for later positions."""
    max_distance: Count = 128
    """Approximately the distance at which the last bucket begins."""

    def check_attention(self, head_dim: int | None, allowed: masks.Mask) -> Findings:
        causal = masks.implies_causal(allowed)
        count = self.buckets if causal else self.buckets // 2
        if not causal and (self.buckets % 2 or self.buckets < 4):
            text = f"buckets ({self.buckets}) must be even and at least 4 where a layer sees both sides"
            yield Finding("SEQ106", ("buckets",), text)
        elif self.max_distance <= count // 2:
            text = f"max_distance ({self.max_distance}) must be above {count // 2}, up to which distances have buckets"
            yield Finding("SEQ106", ("max_distance",), f"{text} of their own")

    def bias(self, heads: int, causal: bool) -> Op:
        return RelativeBiasOp(heads, self.buckets, self.max_distance, not causal)
