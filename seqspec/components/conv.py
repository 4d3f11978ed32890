"""Convolution over time as a layer of its own: causal as in WaveNet, or with a step in the middle."""

from __future__ import annotations

from typing import Literal

from seqspec.components.activations import Activation, activated
from seqspec.components.base import Count, Finding, Findings, Inlet, Name, camel, width_of
from seqspec.components.inherited import Inheritance
from seqspec.components.layers import BareLayer, Beside, Outputs
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.time_conv import TimeConv


class ConvLayer(BareLayer):
    """y_t = activation(b + Σ_k W_k x_{t − dilation·(kernel − 1 − k)}), or with t in the middle if it is not causal.

    Only the real steps of a row count, with zeros before and after. A causal layer carries its last inputs as `tail`.
    """

    width_key = "channels"

    kind: Literal["conv"]
    name: Name | None = None
    """Names its parameters; its kind by default."""
    repeat: Count = 1
    """How many such layers follow each other."""
    channels: Count
    """The number of output channels."""
    kernel: Count
    """How many steps it sees at once; odd unless it is causal."""
    dilation: Count = 1
    """The distance between two steps that it sees."""
    causal: bool | None = None
    """Whether it sees no later steps; the stack's `causal` by default."""
    activation: Activation = "none"
    """The function of the sums."""
    bias: bool | None = None
    """Whether it has a bias b; the stack's `bias` by default."""

    def resolved(self, said: Inheritance) -> ConvLayer:
        bias = said.bias if self.bias is None else self.bias
        causal = said.causal if self.causal is None else self.causal
        return self.model_copy(update={"name": self.called, "bias": bias, "causal": causal})

    @property
    def looks_ahead(self) -> bool:
        return not self.causal and self.kernel > 1

    def width(self, memory: int | None) -> int:
        return self.channels

    def check(self) -> Findings:
        if not self.causal and self.kernel % 2 == 0:
            text = f"kernel ({self.kernel}) must be odd, so that a step stands in its middle"
            yield Finding("SEQ106", ("kernel",), text, "or write `causal: true`")
        if self.kernel == 1 and self.dilation > 1:
            yield Finding("SEQ232", ("dilation",), "`dilation` lies between the steps that are seen, and there is one")

    def check_causal(self, stack: str) -> Findings:
        if self.looks_ahead:
            text = f"this `conv` lets a position of the {stack} see the future"
            yield Finding("SEQ207", ("causal",), text, "write `causal: false` on the stack if that is meant")

    def build(self, g: Builder, scope: str, x: Value, beside: Beside) -> Outputs:
        b = g.child(camel(self.called) + "Layer")
        inlet = Inlet(b)
        inner, mask = inlet.take(x, "x"), inlet.take_optional(beside.mask, "mask")
        stateful = beside.stateful and self.kernel > 1
        op = TimeConv(
            width_of(x), self.channels, self.kernel, self.dilation, bool(self.causal), bool(self.bias), stateful
        )
        y = b.add_many(op, inner, mask, name=self.called)[0]
        return Outputs(g.call(b.done(activated(b, y, self.activation)), scope, *inlet.arguments, hint="x"))
