"""Scaled dot-product attention: over the stack itself, or over another stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from seqspec.components.base import (
    Component,
    Context,
    Count,
    Finding,
    Findings,
    Name,
    Positive,
    Rate,
    Residual,
    Word,
    width_of,
)
from seqspec.components.masks import Mask
from seqspec.components.norms import Norm
from seqspec.components.positions import Alibi, Learned, NoPosition, Position, RelativeBias, Sinusoidal
from seqspec.components.rope import Rope
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops import masks
from seqspec.ops.attention import Attention
from seqspec.ops.base import Op
from seqspec.ops.cache import Append, Hold
from seqspec.ops.linear import Linear
from seqspec.ops.shape import MergeHeads, SplitHeads


class Biases(Component):
    """Which of the four projections have a bias; what is not written is the stack's."""

    query: bool | None = None
    key: bool | None = None
    value: bool | None = None
    output: bool | None = None

    def resolved(self, bias: bool) -> Biases:
        return Biases.model_construct(None, **{k: bias if v is None else v for k, v in self})


class Projected(Component):
    """What all attentions share: heads, and the maps that lead into and out of them.

    Query head h reads key/value head h // (heads / kv_heads).
    """

    name: Name | None = None
    """Names its parameters; its kind by default."""
    heads: Count
    """Query heads."""
    kv_heads: Count | None = None
    """Key/value heads, shared by groups of query heads: 1 is multi-query. `heads` by default."""
    head_dim: Count | None = None
    """Channels of a query and a key in a head; d_model / heads by default. heads · head_dim need not be d_model."""
    value_dim: Count | None = None
    """Channels of a value in a head, head_dim by default; the output map leads from heads · value_dim to d_model."""
    bias: bool | Biases | None = None
    """Whether the projections have a bias, for all four or one by one; the stack's by default."""
    init_scale: Positive | None = None
    """What the values' and the output's maps start multiplied with; the stack's by default."""
    residual: Residual = "add"
    """`none`: the output goes on alone, without what came in."""

    def maps(self, name: str, width: int | None, bias: bool) -> dict[str, Any]:
        """These fields with their defaults."""
        own = self.bias
        if not isinstance(own, Biases):
            own = Biases.model_construct().resolved(bias if own is None else own)
        even = width is not None and width % self.heads == 0
        head_dim = self.head_dim or (width // self.heads if width is not None and even else None)
        return {
            "name": self.name or name,
            "kv_heads": self.kv_heads or self.heads,
            "head_dim": head_dim,
            "value_dim": self.value_dim or head_dim,
            "bias": own.resolved(bias),
        }

    def check_heads(self, width: int) -> Findings:
        if self.head_dim is None:
            text = f"heads ({self.heads}) must divide d_model ({width})"
            yield Finding("SEQ201", ("heads",), text, "change one of them, or write `head_dim`")
        kv_heads = self.kv_heads or self.heads
        if self.heads % kv_heads:
            text = f"kv_heads ({kv_heads}) must divide heads ({self.heads})"
            divisors = ", ".join(str(n) for n in range(1, self.heads + 1) if self.heads % n == 0)
            yield Finding("SEQ202", ("kv_heads",), text, f"write one of {divisors}")

    def _projected(self, b: Builder, x: Value, memory: Value, hints: str = "qkv") -> tuple[Value, Value, Value]:
        """q[B, H, T, d] of x[B, T, D]; k[B, G, S, d], v[B, G, S, e] of memory[B, S, M]."""
        bias, groups = self.bias, int(self.kv_heads or 0)
        assert isinstance(bias, Biases)
        width, wide = int(self.head_dim or 0), int(self.value_dim or 0)

        def project(of: Value, heads: int, channels: int, letter: str, biased: bool | None) -> Value:
            gain = float(self.init_scale or 1) if letter == "v" else 1.0
            y = b.add(Linear(width_of(of), heads * channels, bool(biased), gain), of, name=f"{letter}_proj")
            return b.add(SplitHeads(heads, channels), y, hint=letter if letter in hints else "")

        return (
            project(x, self.heads, width, "q", bias.query),
            project(memory, groups, width, "k", bias.key),
            project(memory, groups, wide, "v", bias.value),
        )

    def _join(self, b: Builder, y: Value, width: int) -> Value:
        """y[B, H, T, e] -> [B, T, D], through the output map."""
        assert isinstance(self.bias, Biases)
        merged = b.add(MergeHeads(), y)
        out = Linear(width_of(merged), width, bool(self.bias.output), float(self.init_scale or 1))
        return b.add(out, merged, name="o_proj")


class Heads(Projected):
    """What attentions with a softmax share. Scores are divided by sqrt(head_dim) without a `scale`."""

    scale: Positive | None = None
    """What scores are multiplied with; 1/sqrt(head_dim) by default."""
    softcap: Positive | None = None
    """c · tanh(score / c), before biases and the mask, as in Gemma 2."""
    dropout: Rate | None = None
    """Dropout on the attention weights; the stack's `dropout.attention` by default."""
    return_weights: bool = False
    """Whether the model puts out the weights too, before dropout: `attentions.N` [B, H, T, S]."""

    def filled(self, name: str, width: int | None, bias: bool, dropout: float) -> dict[str, Any]:
        """The fields that all of them resolve alike."""
        return self.maps(name, width, bias) | {"dropout": dropout if self.dropout is None else self.dropout}

    def _attend(
        self, b: Builder, qkv: tuple[Value, Value, Value], mask: Value | None, allowed: masks.Mask, *bias: Value
    ) -> tuple[Value, ...]:
        """[B, H, T, e], and the weights where they are wanted."""
        op = Attention(allowed, self.scale, float(self.dropout or 0), self.softcap, self.return_weights)
        return b.add_many(op, *qkv, mask, *bias, hint="y weights" if self.return_weights else "")

    def _call(self, g: Builder, b: Builder, outputs: Sequence[Value], x: Value, *arguments: Value) -> Made:
        """The finished region called: y, or y and the weights."""
        hint = "y weights" if self.return_weights else "y"
        made = g.call_many(b.done(*outputs), str(self.name), x, *arguments, hint=hint)
        return made if len(made) == 2 else made[0]


Made = Value | tuple[Value, Value]
"""What a sublayer gives: y[B, T, D], and attention weights where they are wanted."""


class SelfAttention(Heads):
    """x[B, T, D] -> [B, T, D]: softmax(q kᵀ / sqrt(d) + mask) v over the stack's own positions."""

    kind: Literal["attention"]
    mask: Mask | None = None
    """Who may attend to whom; replaces the stack's. Causal in a decoder, everything in an encoder, by default."""
    position: Position | None = None
    """`rope`, `alibi`, `relative_bias` or `none` here; the stack's by default."""
    projections: Literal["all", "none"] = "all"
    """`none`: no maps, so that queries, keys and values are x itself, and the output softmax(x xᵀ · scale) x."""
    qk_norm: Norm | None = None
    """A norm of each head's queries and keys over its channels, `q_norm` and `k_norm`, as in Qwen 3 and Gemma 3."""
    qk_norm_place: Literal["before_rotation", "after_rotation"] | None = None
    """Whether it stands before the rotary positions (Qwen 3, the default) or behind them (HunYuan)."""

    def resolved(
        self, name: str, width: int | None, bias: bool, dropout: float, mask: Mask, position: Position
    ) -> SelfAttention:
        added = isinstance(position, Learned | Sinusoidal)
        own = self.position or (NoPosition.plain() if added else position)
        update = self.filled(name, width, bias, dropout) | {"mask": self.mask or mask, "position": own}
        if self.projections == "none":
            update["bias"] = self.bias
        if self.qk_norm and isinstance(own, Rope):
            update["qk_norm_place"] = self.qk_norm_place or "before_rotation"
        return self.model_copy(update=update)

    def check(self, width: int) -> Findings:
        yield from self.check_heads(width)
        if self.projections == "none":
            yield from self._check_bare(width)
        position = self.position
        if isinstance(position, Learned | Sinusoidal):
            text = f"`{position.kind}` positions are added once to the embedding and cannot be set on a layer"
            yield Finding("SEQ208", ("position",), text, f"write `position: {position.kind}` on the stack")
        if isinstance(position, Rope) and self.head_dim:
            yield from (f.under("position") for f in position.check(self.head_dim))
            if position.switch and self.causal:
                text = f"beyond {position.switch} tokens, running in steps differs from running at once"
                hint = "a past keeps the angles it was turned by"
                yield Finding("SEQ238", ("position", "scaling"), text, hint)
        if isinstance(position, RelativeBias):
            yield from (f.under("position") for f in position.check(masks.implies_causal(self.allowed)))
        if self.mask is not None:
            yield from (f.under("mask") for f in self.mask.check())
        if self.qk_norm_place and not (self.qk_norm and isinstance(position, Rope)):
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

    @property
    def allowed(self) -> masks.Mask:
        """The mask as the op takes it."""
        return masks.normalise(self.mask.to_op()) if self.mask else masks.EVERYTHING

    @property
    def causal(self) -> bool:
        """Whether it sees nothing ahead but a prefix, which is given and not written."""
        return masks.implies_causal(self.allowed, after_prefix=True)

    # ---- what it shares with other layers: a key of each, None for what it does not ask for -----------------------

    @property
    def tables_key(self) -> Op | None:
        """The op that makes its rotary tables."""
        return self.position.tables(int(self.head_dim or 0)) if isinstance(self.position, Rope) else None

    @property
    def mask_key(self) -> masks.Mask | None:
        """A mask that is more than a band."""
        return None if isinstance(self.allowed, masks.Band) else self.allowed

    @property
    def bias_key(self) -> Op | None:
        """The op that makes what is added to its scores."""
        if not isinstance(self.position, Alibi | RelativeBias):
            return None
        return self.position.op(self.heads, masks.implies_causal(self.allowed))

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
        if isinstance(self.position, Rope):
            rotation, cos_sin = self.position.rotation(int(self.head_dim or 0)), [here[t] for t in tables]
            q, k = b.add(rotation, q, *cos_sin, hint="q"), b.add(rotation, k, *cos_sin, hint="k")
        if self.qk_norm_place == "after_rotation":
            q, k = self._normed(b, q, k)
        if context.stateful:
            k, v = b.add(Append("key"), k, hint="k"), b.add(Append("value"), v, hint="v")
        y, *weights = self._attend(b, (q, k, v), here.get(mask), self.allowed, *(here[name] for name in bias))
        y = b.add(MergeHeads(), y) if self.projections == "none" else self._join(b, y, width_of(x))
        return self._call(g, b, (y, *weights), x, *context.arguments(*tables, mask, *bias))

    def _normed(self, b: Builder, q: Value, k: Value) -> tuple[Value, Value]:
        """Queries and keys behind `qk_norm`, where there is one."""
        if self.qk_norm is None:
            return q, k
        norm = self.qk_norm.op(int(self.head_dim or 0))
        return b.add(norm, q, name="q_norm", hint="q"), b.add(norm, k, name="k_norm", hint="k")


class CrossAttention(Heads):
    """x[B, T, D], memory[B, S, M] -> [B, T, D]: attention over another stack. No mask but its padding, no positions."""

    kind: Literal["cross_attention"]
    from_: Word = Field(alias="from")
    """The stack it reads."""

    def resolved(self, name: str, width: int | None, bias: bool, dropout: float) -> CrossAttention:
        return self.model_copy(update=self.filled(name, width, bias, dropout))

    def check(self, width: int) -> Findings:
        yield from self.check_heads(width)

    def build(self, g: Builder, x: Value, context: Context) -> Made:
        b = g.child("CrossAttention")
        inner = b.like(x, "x")
        here = context.within(b, "memory", "memory_mask").values
        q, k, v = self._projected(b, inner, here["memory"], hints="")
        if context.stateful:
            k, v = b.add(Hold("key", cache=True), k, hint="k"), b.add(Hold("value", cache=True), v, hint="v")
        y, *weights = self._attend(b, (q, k, v), here.get("memory_mask"), masks.EVERYTHING)
        y = self._join(b, y, width_of(x))
        return self._call(g, b, (y, *weights), x, *context.arguments("memory", "memory_mask"))
