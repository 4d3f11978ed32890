"""Attention of a stack over itself."""

from __future__ import annotations

from typing import Literal

from seqspec.components.base import Context, Finding, Findings, width_of
from seqspec.components.inherited import Inheritance
from seqspec.components.masks import Mask
from seqspec.components.norms import Norm
from seqspec.components.positions import NoPosition, Position
from seqspec.components.projected import Heads
from seqspec.components.sublayers import Made
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops import masks
from seqspec.ops.base import Op
from seqspec.ops.cache import Append
from seqspec.ops.shape import MergeHeads, SplitHeads


class SelfAttention(Heads):
    """x[B, T, D] -> [B, T, D]: softmax(q kᵀ / sqrt(d) + mask) v over the stack's own positions."""

    masked = True

    kind: Literal["attention"]
    mask: Mask | None = None
    """Which positions may attend to which; the stack's mask by default."""
    position: Position | None = None
    """`rope`, `alibi`, `relative_bias` or `none` here; the stack's by default."""
    projections: Literal["all", "none"] = "all"
    """`none`: no projections, so queries, keys and values are x itself and the output is softmax(x xᵀ · scale) x."""
    qk_norm: Norm | None = None
    """A norm of each head's queries and keys over their channels, `q_norm` and `k_norm`, as in Qwen 3 and Gemma 3."""
    qk_norm_place: Literal["before_rotation", "after_rotation"] | None = None
    """Whether `qk_norm` comes before the rotation (Qwen 3, the default) or after it (HunYuan)."""

    def resolved(self, said: Inheritance) -> SelfAttention:
        own = self.position or (said.position if said.position.acts else NoPosition.plain())
        update = self.filled(said) | {"mask": self.mask or said.mask, "position": own}
        if self.projections == "none":
            update["bias"] = self.bias
        if self.qk_norm and own.turns:
            update["qk_norm_place"] = self.qk_norm_place or "before_rotation"
        return self.model_copy(update=update)

    def check(self, width: int) -> Findings:
        yield from super().check(width)
        if self.projections == "none":
            yield from self._check_bare(width)
        if self.position:
            yield from (f.under("position") for f in self.position.check_attention(self.head_dim, self.allowed))
        if self.mask is not None:
            yield from (f.under("mask") for f in self.mask.check())
        if self.qk_norm_place and not (self.qk_norm and self.position and self.position.turns):
            text = "`qk_norm_place` says on which side of a rotation `qk_norm` stands, and there are not both"
            yield Finding("SEQ232", ("qk_norm_place",), text)

    def _check_bare(self, width: int) -> Findings:
        if self.head_dim and self.heads * self.head_dim != width:
            text = f"without projections, heads · head_dim ({self.heads * self.head_dim}) must be d_model ({width})"
            yield Finding("SEQ204", ("head_dim",), text)
        if self.kv_heads != self.heads:
            text = f"without projections there are as many key/value heads as heads ({self.heads})"
            yield Finding("SEQ202", ("kv_heads",), text, "leave `kv_heads` out")
        if self.value_dim != self.head_dim:
            text = f"without projections, value_dim ({self.value_dim}) must be head_dim ({self.head_dim})"
            yield Finding("SEQ204", ("value_dim",), text)
        if self.bias is not None:
            yield Finding("SEQ232", ("bias",), "`bias` belongs to projections, and there are none")

    def check_causal(self, stack: str) -> Findings:
        if self.looks_ahead:
            text = f"this mask lets a position of the {stack} see the future"
            example = "`mask: {all: [causal, {kind: window, size: 16}]}`"
            hint = f"combine it with `causal`, as in {example}, or write `causal: false` on the stack"
            yield Finding("SEQ207", ("mask",), text, hint)

    @property
    def looks_ahead(self) -> bool:
        """Whether it sees later positions, other than those of a given prefix."""
        return not masks.implies_causal(self.allowed, after_prefix=True)

    @property
    def allowed(self) -> masks.Mask:
        return self.mask.allowed if self.mask else masks.EVERYTHING

    def takes(self, position: Position) -> bool:
        return type(self.position) is type(position)

    @property
    def tables_key(self) -> Op | None:
        return self.position.tables(int(self.head_dim or 0)) if self.position else None

    @property
    def mask_key(self) -> masks.Mask | None:
        return None if isinstance(self.allowed, masks.Band) else self.allowed

    @property
    def bias_key(self) -> Op | None:
        return self.position.bias(self.heads, masks.implies_causal(self.allowed)) if self.position else None

    def build(self, g: Builder, x: Value, context: Context) -> Made:
        shared = context.shared
        tables, bias = shared.get(self.tables_key, ()), shared.get(self.bias_key, ())
        (mask,) = shared.get(self.mask_key, ("mask",))
        b = g.child(f"{context.prefix}Attention")
        inner = b.like(x, "x")
        here = context.within(b, *tables, mask, *bias).values
        if self.projections == "none":
            q = k = v = b.add(SplitHeads(self.heads, int(self.head_dim or 0)), inner, hint="q")
        else:
            q, k, v = self._projected(b, inner, inner)
        if self.qk_norm_place != "after_rotation":
            q, k = self._normed(b, q, k)
        if rotation := self.position and self.position.rotation(int(self.head_dim or 0)):
            cos_sin = [here[t] for t in tables]
            q, k = b.add(rotation, q, *cos_sin, hint="q"), b.add(rotation, k, *cos_sin, hint="k")
        if self.qk_norm_place == "after_rotation":
            q, k = self._normed(b, q, k)
        if context.stateful:
            k, v = b.add(Append("key"), k, hint="k"), b.add(Append("value"), v, hint="v")
        y, *weights = self._attend(b, (q, k, v), here.get(mask), self.allowed, *(here[name] for name in bias))
        y = b.add(MergeHeads(), y) if self.projections == "none" else self._join(b, y, width_of(x))
        return self._call(g, b, (y, *weights), x, *context.arguments(*tables, mask, *bias))

    def _normed(self, b: Builder, q: Value, k: Value) -> tuple[Value, Value]:
        """Queries and keys after `qk_norm`, if there is one."""
        if self.qk_norm is None:
            return q, k
        norm = self.qk_norm.op(int(self.head_dim or 0))
        return b.add(norm, q, name="q_norm", hint="q"), b.add(norm, k, name="k_norm", hint="k")
