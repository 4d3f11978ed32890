"""Scaled dot-product attention: over the stack itself, or over another stack."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from seqspec.components.base import Component, Context, Count, Finding, Findings, Name, Positive, Rate, Word, width_of
from seqspec.components.masks import Mask
from seqspec.components.positions import Learned, NoPosition, Position, Rope, Sinusoidal
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops import masks
from seqspec.ops.attention import Attention
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


class Heads(Component):
    """What self- and cross-attention share: projections, heads and their arithmetic.

    Query head h reads key/value head h // (heads / kv_heads); scores are divided by sqrt(head_dim) without a `scale`.
    """

    name: Name | None = None
    """Names its parameters; its kind by default."""
    heads: Count
    """Query heads."""
    kv_heads: Count | None = None
    """Key/value heads, shared by groups of query heads: 1 is multi-query. `heads` by default."""
    head_dim: Count | None = None
    """Channels of a head; d_model / heads by default. heads · head_dim need not be d_model."""
    scale: Positive | None = None
    """What scores are multiplied with; 1/sqrt(head_dim) by default."""
    softcap: Positive | None = None
    """c · tanh(score / c), before the mask, as in Gemma 2."""
    bias: bool | Biases | None = None
    """Whether the projections have a bias, for all four or one by one; the stack's by default."""
    dropout: Rate | None = None
    """Dropout on the attention weights; the stack's `dropout.attention` by default."""

    def filled(self, name: str, width: int | None, bias: bool, dropout: float) -> dict[str, Any]:
        """The fields that both kinds resolve alike."""
        own = self.bias
        if not isinstance(own, Biases):
            own = Biases.model_construct().resolved(bias if own is None else own)
        even = width is not None and width % self.heads == 0
        return {
            "name": self.name or name,
            "kv_heads": self.kv_heads or self.heads,
            "head_dim": self.head_dim or (width // self.heads if width is not None and even else None),
            "bias": own.resolved(bias),
            "dropout": dropout if self.dropout is None else self.dropout,
        }

    def check_heads(self, width: int) -> Findings:
        if self.head_dim is None:
            text = f"heads ({self.heads}) must divide d_model ({width})"
            yield Finding("SEQ201", ("heads",), text, "change one of them, or write `head_dim`")
        kv_heads = self.kv_heads or self.heads
        if self.heads % kv_heads:
            text = f"kv_heads ({kv_heads}) must divide heads ({self.heads})"
            yield Finding("SEQ202", ("kv_heads",), text)

    def _project(self, b: Builder, x: Value, heads: int, letter: str, bias: bool | None, hint: str = "") -> Value:
        """x[B, T, D] -> [B, heads, T, d], through the linear map q_proj, k_proj or v_proj."""
        head_dim = int(self.head_dim or 0)
        y = b.add(Linear(width_of(x), heads * head_dim, bool(bias)), x, name=f"{letter}_proj")
        return b.add(SplitHeads(heads, head_dim), y, hint=hint)

    def _join(self, b: Builder, y: Value, width: int, bias: bool | None) -> Value:
        """y[B, H, T, d] -> [B, T, D], through the output map."""
        merged = b.add(MergeHeads(), y)
        return b.add(Linear(width_of(merged), width, bool(bias)), merged, name="o_proj")

    def _attend(self, b: Builder, q: Value, k: Value, v: Value, mask: Value | None, allowed: masks.Mask) -> Value:
        return b.add(Attention(allowed, self.scale, float(self.dropout or 0), self.softcap), q, k, v, mask)


class SelfAttention(Heads):
    """x[B, T, D] -> [B, T, D]: softmax(q kᵀ / sqrt(d) + mask) v over the stack's own positions."""

    kind: Literal["attention"]
    mask: Mask | None = None
    """Who may attend to whom; replaces the stack's. Causal in a decoder, everything in an encoder, by default."""
    position: Position | None = None
    """`rope` or `none` here; the stack's by default."""

    def resolved(
        self, name: str, width: int | None, bias: bool, dropout: float, mask: Mask, position: Position
    ) -> SelfAttention:
        added = isinstance(position, Learned | Sinusoidal)
        own = self.position or (NoPosition.plain() if added else position)
        update = self.filled(name, width, bias, dropout) | {"mask": self.mask or mask, "position": own}
        return self.model_copy(update=update)

    def check(self, width: int) -> Findings:
        yield from self.check_heads(width)
        if isinstance(self.position, Learned | Sinusoidal):
            kind = self.position.kind
            text = f"`{kind}` positions are added once to the embedding and cannot be set on a layer"
            yield Finding("SEQ208", ("position",), text, f"write `position: {kind}` on the stack")
        if isinstance(self.position, Rope) and self.head_dim:
            yield from (f.under("position") for f in self.position.check(self.head_dim))
        if self.mask is not None:
            yield from (f.under("mask") for f in self.mask.check())

    @property
    def allowed(self) -> masks.Mask:
        """The mask as the op takes it."""
        return self.mask.to_op() if self.mask else masks.EVERYTHING

    @property
    def causal(self) -> bool:
        return masks.implies_causal(self.allowed)

    def rope_key(self) -> tuple[Rope, int] | None:
        """Which rotary tables it reads."""
        if not isinstance(self.position, Rope):
            return None
        return self.position.model_copy(update={"layout": "half_split"}), self.position.width(int(self.head_dim or 0))

    def build(self, g: Builder, x: Value, context: Context) -> Value:
        tables = context.rope.get(self.rope_key(), ())
        b, bias = g.child(f"{context.prefix}Attention"), self.bias
        assert isinstance(bias, Biases)
        inner = b.like(x, "x")
        here = context.within(b, *tables, "mask")
        q = self._project(b, inner, self.heads, "q", bias.query, hint="q")
        k = self._project(b, inner, int(self.kv_heads or 0), "k", bias.key, hint="k")
        v = self._project(b, inner, int(self.kv_heads or 0), "v", bias.value, hint="v")
        if tables and isinstance(self.position, Rope):
            rotation, cos_sin = self.position.rotation(int(self.head_dim or 0)), [here.values[t] for t in tables]
            q, k = b.add(rotation, q, *cos_sin, hint="q"), b.add(rotation, k, *cos_sin, hint="k")
        if context.stateful:
            k, v = b.add(Append("key"), k, hint="k"), b.add(Append("value"), v, hint="v")
        y = self._attend(b, q, k, v, here.values.get("mask"), self.allowed)
        region = b.done(self._join(b, y, width_of(x), bias.output))
        return g.call(region, str(self.name), x, *context.arguments(*tables, "mask"), hint="y")


class CrossAttention(Heads):
    """x[B, T, D], memory[B, S, M] -> [B, T, D]: attention over another stack. No mask but its padding, no positions."""

    kind: Literal["cross_attention"]
    from_: Word = Field(alias="from")
    """The stack it reads."""

    def resolved(self, name: str, width: int | None, bias: bool, dropout: float) -> CrossAttention:
        return self.model_copy(update=self.filled(name, width, bias, dropout))

    def check(self, width: int) -> Findings:
        yield from self.check_heads(width)

    def build(self, g: Builder, x: Value, context: Context) -> Value:
        b, bias = g.child("CrossAttention"), self.bias
        assert isinstance(bias, Biases)
        inner = b.like(x, "x")
        here = context.within(b, "memory", "memory_mask")
        memory, kv_heads = here.values["memory"], int(self.kv_heads or 0)
        q = self._project(b, inner, self.heads, "q", bias.query)
        k = self._project(b, memory, kv_heads, "k", bias.key)
        v = self._project(b, memory, kv_heads, "v", bias.value)
        if context.stateful:
            k, v = b.add(Hold("key", cache=True), k, hint="k"), b.add(Hold("value", cache=True), v, hint="v")
        y = self._attend(b, q, k, v, here.values.get("memory_mask"), masks.EVERYTHING)
        region = b.done(self._join(b, y, width_of(x), bias.output))
        return g.call(region, str(self.name), x, *context.arguments("memory", "memory_mask"), hint="y")
