"""Sound: mel features, and convolutions over time in front of the layers."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from seqspec.components.base import Component, Count, Finding, Findings
from seqspec.components.linear import Activation
from seqspec.components.norms import Norm
from seqspec.graph.builder import Builder
from seqspec.graph.dims import Shape
from seqspec.graph.ir import Value
from seqspec.graph.types import DType


class Convolution(Component):
    """y_t = activation(b + Σ_k W_k x_{stride·t + k − ⌊kernel/2⌋}): of T frames it makes ⌈T / stride⌉."""

    channels: Count
    """Channels it puts out."""
    kernel: Count
    """Frames that it sees at once, an odd number: the one in the middle, and as many on either side."""
    stride: Count = 1
    """Frames from one step to the next."""
    activation: Activation = "none"
    """What the sums pass through."""
    bias: bool = True
    """Whether there is a b."""

    def check(self) -> Findings:
        if self.kernel % 2 == 0:
            text = f"kernel ({self.kernel}) must be odd, so that a frame stands in its middle"
            yield Finding("SEQ106", ("kernel",), text)


class Audio(Component):
    """Mel features [B, mel_bins, T] -> vectors [B, T', channels], as in Whisper.

    Every convolution sees zeros before and behind the real frames, wherever padding lies, and its stride shortens
    lengths and masks: positions and layers count what is left.
    """

    port: ClassVar[str] = "input_features"
    dtype: ClassVar[DType] = "float"

    kind: Literal["audio"]
    mel_bins: Count
    """Channels of a frame."""
    convolutions: list[Convolution] = Field(min_length=1)
    """What makes vectors of frames, in the order they run; the last one's channels are the width of the stack."""
    norm: Norm | None = None
    """A norm behind the convolutions and the positions, called `embed_norm`."""

    @property
    def width(self) -> int:
        """Channels that come out."""
        return self.convolutions[-1].channels

    def check(self) -> Findings:
        for n, convolution in enumerate(self.convolutions):
            yield from (f.under("convolutions", n) for f in convolution.check())

    def embed(self, b: Builder, frames: Value, mask: Value) -> tuple[Value, Value]:
        """frames[B, T, mel_bins] -> [B, T', D], and the mask of that, real ones in front."""
        from seqspec.ops.conv import Conv1d  # as in components/rope.py
        from seqspec.ops.elementwise import Unary
        from seqspec.ops.frames import RealFirst, Subsample
        from seqspec.ops.padding import ZeroPadding

        x, mask = b.add_many(RealFirst(), frames, mask, hint="x mask")
        width = self.mel_bins
        for n, convolution in enumerate(self.convolutions):
            if n:
                x = b.add(ZeroPadding(), x, mask)  # a bias is not zero there
            op = Conv1d(width, convolution.channels, convolution.kernel, convolution.stride, bias=convolution.bias)
            x = b.add(op, x, name=f"convolutions.{n}", hint="x" if convolution.activation == "none" else "")
            if convolution.activation != "none":
                x = b.add(Unary(convolution.activation), x, hint="x")
            if convolution.stride > 1:
                mask = b.add(Subsample(convolution.stride), mask, hint="mask")
            width = convolution.channels
        return x, mask

    def shape(self, batch_time: Shape) -> Shape:
        batch, time = batch_time
        return (batch, self.mel_bins, time)
