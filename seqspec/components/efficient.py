"""Attention in linear time: with a feature map in place of the softmax, or over projected keys and values."""

from __future__ import annotations

from typing import Literal

from seqspec.components.base import Context, Count, Finding, Findings, ProjectedLength, width_of
from seqspec.components.inherited import Inheritance
from seqspec.components.projected import Heads, Projected
from seqspec.components.sublayers import Made, Single
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops import masks
from seqspec.ops.linear_attention import LinearAttention as LinearOp
from seqspec.ops.time_projection import TimeProjection


class LinearAttention(Projected):
    """y_i = φ(q_i) Σ φ(k_j) v_jᵀ / φ(q_i)·Σ φ(k_j), φ = elu + 1, over the stack's own positions j, up to i if causal.

    Its state, Σ φ(k) vᵀ and Σ φ(k), does not grow. Rotary positions and attention biases do not act here.
    """

    kind: Literal["linear_attention"]
    causal: bool | None = None
    """Whether a position sees only what came before it; the stack's by default."""

    @property
    def looks_ahead(self) -> bool:
        return not self.causal

    def resolved(self, said: Inheritance) -> LinearAttention:
        causal = said.causal if self.causal is None else self.causal
        return self.model_copy(update=self.filled(said) | {"causal": causal})

    def check_causal(self, stack: str) -> Findings:
        if self.looks_ahead:
            yield _sees_ahead(self, stack)

    def build(self, g: Builder, x: Value, context: Context) -> Value:
        b = g.child(f"{context.prefix}LinearAttention")
        inner = b.like(x, "x")
        here = context.within(b, "mask").values
        qkv = self._projected(b, inner, inner)
        y = b.add_many(LinearOp(bool(self.causal), context.stateful), *qkv, here.get("mask"))[0]
        region = b.done(self._join(b, y, width_of(x)))
        return g.call(region, str(self.name), x, *context.arguments("mask"), hint="y")


class LowRankAttention(Heads):
    """softmax(q (E k)ᵀ / sqrt(d)) (F v): keys and values projected to `projected_length` positions, as in Linformer.

    It sees every position, so it is not for a causal stack. E and F have a column per position, up to `max_length`.
    """

    reads_positions = True

    kind: Literal["low_rank_attention"]
    projected_length: ProjectedLength
    """The number of keys and values after the projection."""
    max_length: Count
    """The number of positions; a position beyond is an error."""

    @property
    def looks_ahead(self) -> bool:
        return True

    def resolved(self, said: Inheritance) -> LowRankAttention:
        return self.model_copy(update=self.filled(said))

    def check_causal(self, stack: str) -> Findings:
        yield _sees_ahead(self, stack)

    def build(self, g: Builder, x: Value, context: Context) -> Made:
        b = g.child(f"{context.prefix}LowRankAttention")
        inner = b.like(x, "x")
        here = context.within(b, "positions", "mask").values
        q, k, v = self._projected(b, inner, inner)
        told = here["positions"], here.get("mask")
        k = b.add(TimeProjection(self.max_length, self.projected_length), k, *told, name="e_proj", hint="k")
        v = b.add(TimeProjection(self.max_length, self.projected_length), v, *told, name="f_proj", hint="v")
        y, *weights = self._attend(b, (q, k, v), None, masks.EVERYTHING)
        y = self._join(b, y, width_of(x))
        return self._call(g, b, (y, *weights), x, *context.arguments("positions", "mask"))


def _sees_ahead(attention: Single, stack: str) -> Finding:
    text = f"this `{attention.kind}` lets a position of the {stack} see the future"
    return Finding("SEQ207", (), text, "write `causal: false` on the stack")
