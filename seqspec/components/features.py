"""Vectors, as they come or through a linear map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from seqspec.components.base import Width
from seqspec.components.inputs import Around, Input
from seqspec.components.norms import Norm
from seqspec.graph.builder import Builder
from seqspec.graph.dims import Shape
from seqspec.graph.ir import Value
from seqspec.ops.linear import Linear
from seqspec.ops.padding import ZeroPadding

if TYPE_CHECKING:
    from seqspec.components.tokens import Tokens


class Features(Input):
    """Vectors [B, T, size] -> [B, T, D], through a linear map `input_proj` where a `d_model` is written."""

    port = "features"
    dtype = "float"

    kind: Literal["features"]
    size: Width
    """Channels of a vector."""
    d_model: Width | None = None
    """Width after the map; without it, and without one on the stack, features enter raw."""
    norm: Norm | None = None
    """A norm behind the map and the positions, called `embed_norm`."""

    def stack_width(self, owner: Tokens | None) -> int | None:
        return self.d_model

    def entering(self, d_model: int | None) -> int | None:
        return self.size if self.d_model is None else d_model

    def resolved(self, d_model: int | None, owner: Tokens | None) -> Features:
        return self.model_copy(update={"d_model": self.d_model or d_model})

    def shape(self, batch_time: Shape) -> Shape:
        return (*batch_time, self.size)

    def vectors(self, b: Builder, data: Value, around: Around) -> Value:
        """x[B, T, size] -> [B, T, D], zeros at padding first, so that a NaN there reaches nothing."""
        x = b.add(ZeroPadding(), data, around.mask)
        return x if self.d_model is None else b.add(Linear(self.size, self.d_model), x, name="input_proj")
