"""A linear map as a layer: Elman's y = g(W h + b) after a recurrent layer, or a change of width."""

from __future__ import annotations

from typing import Literal

from seqspec.components.activations import Activation, activated
from seqspec.components.base import Count, Inlet, Name, Width, camel, width_of
from seqspec.components.inherited import Inheritance
from seqspec.components.layers import BareLayer, Beside, Outputs
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.linear import Linear


class LinearLayer(BareLayer):
    """y = activation(W x + b) at every position."""

    width_key = "size"

    kind: Literal["linear"]
    name: Name | None = None
    """Names its parameters; its kind by default."""
    repeat: Count = 1
    """How many such layers follow one another."""
    size: Width
    """Output channels."""
    activation: Activation = "none"
    """Applied to W x + b."""
    bias: bool | None = None
    """Whether there is a bias b; the stack's `bias` by default."""

    def resolved(self, said: Inheritance) -> LinearLayer:
        return self.model_copy(update={"name": self.called, "bias": said.bias if self.bias is None else self.bias})

    def width(self, memory: int | None) -> int:
        return self.size

    def build(self, g: Builder, scope: str, x: Value, beside: Beside) -> Outputs:
        b = g.child(camel(self.called) + "Layer")
        inlet = Inlet(b)
        op = Linear(width_of(x), self.size, bool(self.bias))
        y = b.add(op, inlet.take(x, "x"), name=self.called)
        return Outputs(g.call(b.done(activated(b, y, self.activation)), scope, *inlet.arguments, hint="x"))
