"""The position-wise feed-forward sublayer."""

from __future__ import annotations

from typing import Literal

from seqspec.components.activations import activated
from seqspec.components.base import Context, Name, Positive, Rate, Residual, Width, width_of
from seqspec.components.inherited import Inheritance
from seqspec.components.sublayers import Single
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.dropout import Dropout
from seqspec.ops.elementwise import Multiply
from seqspec.ops.linear import Linear

Activation = Literal["none", "relu", "relu2", "gelu", "gelu_tanh", "silu", "sigmoid"]


class FeedForward(Single):
    """x[B, T, D] -> down(activation(up(x))), or if gated down(activation(gate(x)) · up(x))."""

    kind: Literal["ffn"]
    name: Name | None = None
    """Names its parameters; its kind by default."""
    d_ff: Width
    """The inner width."""
    activation: Activation = "gelu"
    """`gelu` is exact (erf), `gelu_tanh` is GPT-2's approximation, `relu2` is max(x, 0)² as in Primer.

    With `gated`, `silu` is SwiGLU, `gelu` GEGLU, `relu` ReGLU, `sigmoid` the first GLU, and `none` the bilinear form.
    """
    gated: bool = False
    """Whether a second projection multiplies the activated one."""
    bias: bool | None = None
    """Whether its linear maps have a bias; the stack's by default."""
    dropout: Rate | None = None
    """Dropout on the inner activations; the stack's `dropout.inner` by default."""
    init_scale: Positive | None = None
    """Factor on the initial weights of its maps; the stack's by default."""
    residual: Residual = "add"
    """`none`: no residual, the output replaces the input."""

    def resolved(self, said: Inheritance) -> FeedForward:
        return self.model_copy(
            update={
                "name": self.called,
                "bias": said.bias if self.bias is None else self.bias,
                "dropout": said.rates.inner if self.dropout is None else self.dropout,
                "init_scale": self.init_scale or said.init_scale,
            }
        )

    def build(self, g: Builder, x: Value, context: Context) -> Value:
        b = g.child("FeedForward")
        inner, width, bias = b.like(x, "x"), width_of(x), bool(self.bias)
        gain = float(self.init_scale or 1)
        up = b.add(Linear(width, self.d_ff, bias, gain), inner, name="up_proj")
        if self.gated:
            gate = b.add(Linear(width, self.d_ff, bias, gain), inner, name="gate_proj")
            up = b.add(Multiply(), activated(b, gate, self.activation), up)
        else:
            up = activated(b, up, self.activation)
        if self.dropout:
            up = b.add(Dropout(self.dropout), up)
        region = b.done(b.add(Linear(self.d_ff, width, bias, gain), up, name="down_proj"))
        return g.call(region, str(self.name), x)
