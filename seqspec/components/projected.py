"""What attention sublayers share: heads, projections into and out of them, and the softmax between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqspec.components.base import (
    Component,
    Finding,
    Findings,
    HeadCount,
    HeadWidth,
    Name,
    Positive,
    Rate,
    Residual,
    width_of,
)
from seqspec.components.inherited import Inheritance
from seqspec.components.sublayers import Made, Single
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops import masks
from seqspec.ops.attention import Attention
from seqspec.ops.linear import Linear
from seqspec.ops.shape import MergeHeads, SplitHeads


class Biases(Component):
    """Which of the four projections have a bias; the stack's `bias` by default."""

    query: bool | None = None
    key: bool | None = None
    value: bool | None = None
    output: bool | None = None

    def resolved(self, bias: bool) -> Biases:
        """Every default filled in."""
        return Biases.model_construct(None, **{k: bias if v is None else v for k, v in self})


class Projected(Single):
    """What all attention sublayers share: heads, and the projections into and out of them.

    Query head h reads key/value head h // (heads / kv_heads).
    """

    name: Name | None = None
    """Names its parameters; its kind by default."""
    heads: HeadCount
    """The number of query heads. It must divide `d_model` unless `head_dim` is given."""
    kv_heads: HeadCount | None = None
    """The number of key/value heads; it must divide `heads`, its default. Query heads share them: 1 is multi-query."""
    head_dim: HeadWidth | None = None
    """Channels of queries and keys per head; d_model / heads by default. heads · head_dim need not be d_model."""
    value_dim: HeadWidth | None = None
    """Channels of values per head, head_dim by default; the output map goes from heads · value_dim to d_model."""
    bias: bool | Biases | None = None
    """Whether the projections have a bias, for all four or one by one; the stack's by default."""
    init_scale: Positive | None = None
    """Factor on the initial weights of the value and output maps; the stack's by default."""
    residual: Residual = "add"
    """`none`: no residual, the output replaces the input."""

    def filled(self, said: Inheritance) -> dict[str, Any]:
        """The values of these fields, with every default filled in."""
        own, bias, width = self.bias, said.bias, said.d_model
        if not isinstance(own, Biases):
            own = Biases.model_construct().resolved(bias if own is None else own)
        even = width is not None and width % self.heads == 0
        head_dim = self.head_dim or (width // self.heads if width is not None and even else None)
        return {
            "name": self.called,
            "kv_heads": self.kv_heads or self.heads,
            "head_dim": head_dim,
            "value_dim": self.value_dim or head_dim,
            "bias": own.resolved(bias),
            "init_scale": self.init_scale or said.init_scale,
        }

    def check(self, width: int) -> Findings:
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
    """What attention sublayers with a softmax share."""

    scale: Positive | None = None
    """Factor on the scores; 1/sqrt(head_dim) by default."""
    softcap: Positive | None = None
    """A cap c turns a score into c · tanh(score / c), before biases and the mask, as in Gemma 2; no cap by default."""
    dropout: Rate | None = None
    """Dropout on the attention weights; the stack's `dropout.attention` by default."""
    return_weights: bool = False
    """Whether the weights before dropout are an output of the model too: `attentions.N` [B, H, T, S]."""

    def filled(self, said: Inheritance) -> dict[str, Any]:
        dropout = said.rates.attention if self.dropout is None else self.dropout
        return super().filled(said) | {"dropout": dropout}

    @property
    def gives_weights(self) -> bool:
        return self.return_weights

    def _attend(
        self, b: Builder, qkv: tuple[Value, Value, Value], mask: Value | None, allowed: masks.Mask, *bias: Value
    ) -> tuple[Value, ...]:
        """y[B, H, T, e], and the weights if they are an output."""
        op = Attention(allowed, self.scale, float(self.dropout or 0), self.softcap, self.return_weights)
        return b.add_many(op, *qkv, mask, *bias, hint="y weights" if self.return_weights else "")

    def _call(self, g: Builder, b: Builder, outputs: Sequence[Value], x: Value, *arguments: Value) -> Made:
        """A call of the finished region: y, or y and the weights."""
        hint = "y weights" if self.return_weights else "y"
        made = g.call_many(b.done(*outputs), str(self.name), x, *arguments, hint=hint)
        return made if len(made) == 2 else made[0]
