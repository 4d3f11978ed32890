"""A linear map as a layer of its own: Elman's y = g(W h + b) behind a recurrent layer, or from one width to another."""

from __future__ import annotations

from typing import Literal

from seqspec.components.base import Component, Count, Inlet, Name, camel, width_of
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.elementwise import Unary
from seqspec.ops.linear import Linear

Activation = Literal["none", "relu", "relu2", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]


class LinearLayer(Component):
    """y = activation(W x + b) at every position."""

    kind: Literal["linear"]
    name: Name | None = None
    """Names its parameters; its kind by default."""
    repeat: Count = 1
    """How many such layers follow each other."""
    size: Count
    """Channels it puts out."""
    activation: Activation = "none"
    """What W x + b passes through."""
    bias: bool | None = None
    """Whether there is a b; the stack's `bias` by default."""

    def resolved(self, bias: bool) -> LinearLayer:
        """Every default filled in."""
        own = bias if self.bias is None else self.bias
        return self.model_copy(update={"name": self.name or self.kind, "bias": own})

    def build(self, g: Builder, scope: str, x: Value) -> Value:
        """x[B, T, I] -> y[B, T, size]: a call of one region."""
        b = g.child(camel(str(self.name)) + "Layer")
        inlet = Inlet(b)
        op = Linear(width_of(x), self.size, bool(self.bias))
        y = b.add(op, inlet.take(x, "x"), name=str(self.name))
        if self.activation != "none":
            y = b.add(Unary(self.activation), y)
        return g.call(b.done(y), scope, *inlet.arguments, hint="x")
