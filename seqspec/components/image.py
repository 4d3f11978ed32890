"""Image input: a sequence of patches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from seqspec.components.base import Count, Finding, Findings, ImageSide
from seqspec.components.inputs import Around, Input, Owner
from seqspec.components.norms import Norm
from seqspec.graph.builder import Builder
from seqspec.graph.dims import Shape
from seqspec.graph.ir import Value
from seqspec.ops.conv import PatchEmbedding
from seqspec.ops.frames import ClassToken


class Image(Input):
    """Pixels [B, channels, size, size] -> vectors [B, N, D]: a linear map of each patch, row by row, as in ViT.

    N = (size / patch)², and one more with a class token. Images have no padding.
    """

    port = "pixel_values"
    dtype = "float"
    at_once = True

    kind: Literal["image"]
    size: ImageSide
    """Side of the image in pixels."""
    patch: Count
    """Side of a patch in pixels; it must divide `size`."""
    channels: Count = 3
    """Numbers per pixel."""
    class_token: bool = False
    """Whether a learned vector precedes the patches, for `pool: first` to read."""
    norm: Norm | None = None
    """A norm after the map and the positions, called `embed_norm`."""

    @property
    def count(self) -> int:
        return (self.size // self.patch) ** 2 + self.class_token

    def check(self, d_model: int | None, owner: Owner | None) -> Findings:
        if self.size % self.patch:
            text = f"patch ({self.patch}) must divide size ({self.size})"
            yield Finding("SEQ231", ("patch",), text)

    def shape(self, batch_time: Shape) -> Shape:
        return (batch_time[0], self.channels, self.size, self.size)

    def signal(
        self, b: Builder, data: Value, width: int, padding: Callable[[Value], Value]
    ) -> tuple[Value, Value | None]:
        """data[B, C, H, W] -> [B, N, width]"""
        x = b.add(PatchEmbedding(self.channels, width, self.patch), data, name="patch_embedding", hint="x")
        return b.add(ClassToken(width), x, hint="x") if self.class_token else x, None

    def vectors(self, b: Builder, data: Value, around: Around) -> Value:
        return data
