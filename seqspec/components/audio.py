"""Audio input: mel features, and convolutions over time before the layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from seqspec.components.activations import Activation, activated
from seqspec.components.base import Component, Count, Finding, Findings, Width
from seqspec.components.inputs import Around, Input, Owner
from seqspec.components.norms import Norm
from seqspec.graph.builder import Builder
from seqspec.graph.dims import Shape
from seqspec.graph.ir import Value
from seqspec.ops.conv import Conv1d
from seqspec.ops.frames import ChannelsLast, RealFirst, Subsample
from seqspec.ops.padding import ZeroPadding

if TYPE_CHECKING:
    from seqspec.components.tokens import Tokens


class Convolution(Component):
    """y_t = activation(b + Σ_k W_k x_{stride·t + k − ⌊kernel/2⌋}): T frames become ⌈T / stride⌉."""

    channels: Width
    """Output channels."""
    kernel: Count
    """The number of frames that it sees at once; odd, so that the current frame is in the middle."""
    stride: Count = 1
    """Frames from one output to the next."""
    activation: Activation = "none"
    """Applied to the sums."""
    bias: bool = True
    """Whether there is a bias b."""

    def check(self) -> Findings:
        if self.kernel % 2 == 0:
            text = f"kernel ({self.kernel}) must be odd, so that a frame stands in its middle"
            yield Finding("SEQ106", ("kernel",), text)


class Audio(Input):
    """Mel features [B, mel_bins, T] -> vectors [B, T', channels], as in Whisper.

    Every convolution sees zeros before and after the real frames, wherever padding is. Its stride shortens lengths and
    masks, so positions and layers count the frames that are left.
    """

    port = "input_features"
    dtype = "float"
    at_once = True

    kind: Literal["audio"]
    mel_bins: Count
    """Channels of a frame."""
    convolutions: list[Convolution] = Field(min_length=1)
    """The convolutions in order. The channels of the last one are the width of the stack."""
    norm: Norm | None = None
    """A norm after the convolutions and the positions, called `embed_norm`."""

    def stack_width(self, owner: Tokens | None) -> int:
        return self.convolutions[-1].channels

    def entering(self, d_model: int | None) -> int:
        return self.convolutions[-1].channels

    def check(self, d_model: int | None, owner: Owner | None) -> Findings:
        for n, convolution in enumerate(self.convolutions):
            yield from (f.under("convolutions", n) for f in convolution.check())

    def shape(self, batch_time: Shape) -> Shape:
        batch, time = batch_time
        return (batch, self.mel_bins, time)

    def signal(self, b: Builder, data: Value, width: int, padding: Callable[[Value], Value]) -> tuple[Value, Value]:
        """data[B, mel_bins, T] -> [B, T', D], and the mask of that, real ones in front."""
        frames = b.add(ChannelsLast(), data, hint="frames")
        x, mask = b.add_many(RealFirst(), frames, padding(frames), hint="x mask")
        channels = self.mel_bins
        for n, convolution in enumerate(self.convolutions):
            if n:
                x = b.add(ZeroPadding(), x, mask)  # a bias is not zero there
            op = Conv1d(channels, convolution.channels, convolution.kernel, convolution.stride, bias=convolution.bias)
            x = b.add(op, x, name=f"convolutions.{n}", hint="x" if convolution.activation == "none" else "")
            x = activated(b, x, convolution.activation, hint="x")
            if convolution.stride > 1:
                mask = b.add(Subsample(convolution.stride), mask, hint="mask")
            channels = convolution.channels
        return x, mask

    def vectors(self, b: Builder, data: Value, around: Around) -> Value:
        return data
