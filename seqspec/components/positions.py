"""Positions: how a stack tells where a token stands. They count real tokens, so left padding changes nothing."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from seqspec.components.base import ByKind, Component, Count, Finding, Findings, Positive, width_of
from seqspec.components.rope import Rope
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.base import Op
from seqspec.ops.positions import LearnedPositions, SinusoidalPositions


class NoPosition(Component):
    """Nothing says where a token stands, but for the mask."""

    kind: Literal["none"]


class Sinusoidal(Component):
    """Sines and cosines of falling frequency, added once to the embedding. No parameters, any length."""

    kind: Literal["sinusoidal"]
    layout: Literal["interleaved", "half_split"] = "interleaved"
    """`interleaved`: sine and cosine side by side, the original; `half_split`: all sines first, Whisper's."""
    base: Positive = 10000.0
    """Frequencies fall from 1 to about 1/base."""

    def build(self, b: Builder, positions: Value, x: Value) -> Value:
        return b.add(SinusoidalPositions(width_of(x), self.layout, self.base), positions, x)


class Learned(Component):
    """A table of `max_length` learned rows, added once to the embedding. A position past its end is an error."""

    kind: Literal["learned"]
    max_length: Count
    """How many positions there are."""

    def build(self, b: Builder, positions: Value, x: Value) -> Value:
        return b.add(LearnedPositions(self.max_length, width_of(x)), positions, name="embed_positions")


class Alibi(Component):
    """Adds −slope · distance to the scores of every self-attention, a slope for each head. Any number of heads."""

    kind: Literal["alibi"]

    def op(self, heads: int, causal: bool) -> Op:
        from seqspec.ops.biases import AlibiBias  # as in components/rope.py

        return AlibiBias(heads)


class RelativeBias(Component):
    """Adds a learned number for each head and distance to the scores of every self-attention, as in T5.

    Half of the buckets hold one distance each, the others grow up to `max_distance`, and the last takes all beyond.
    Layers that say the same read one table, `embed_relative`, of the stack.
    """

    kind: Literal["relative_bias"]
    buckets: Annotated[int, Field(ge=2)] = 32
    """Rows of the table. Where a layer sees the future, half of them are for what is behind."""
    max_distance: Count = 128
    """Where the last bucket begins, about."""

    def check(self, causal: bool) -> Findings:
        count = self.buckets if causal else self.buckets // 2
        if not causal and (self.buckets % 2 or self.buckets < 4):
            text = f"buckets ({self.buckets}) must be even and at least 4 where a layer sees both sides"
            yield Finding("SEQ106", ("buckets",), text)
        elif self.max_distance <= count // 2:
            text = f"max_distance ({self.max_distance}) must be above {count // 2}, up to which distances have buckets"
            yield Finding("SEQ106", ("max_distance",), f"{text} of their own")

    def op(self, heads: int, causal: bool) -> Op:
        from seqspec.ops.biases import RelativeBias as RelativeBiasOp

        return RelativeBiasOp(heads, self.buckets, self.max_distance, not causal)


Position = Annotated[NoPosition | Sinusoidal | Learned | Rope | Alibi | RelativeBias, ByKind]
