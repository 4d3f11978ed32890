"""Feature input: vectors as they are, or through a linear map."""

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
    """Vectors [B, T, size] -> [B, T, D], through a linear map `input_proj` if a `d_model` is given."""

    port = "features"
    dtype = "float"

    kind: Literal["features"]
    size: Width
    """Channels of a vector."""
    d_model: Width | None = None
    """Width after the map, the stack's by default. Without either, features enter the stack as they are."""
    norm: Norm | None = None
    """A norm after the map and the positions, called `embed_norm`."""

    def stack_width(self, owner: Tokens | None) -> int | None:
        return self.d_model

    def entering(self, d_model: int | None) -> int | None:
        return self.size if self.d_model is None else d_model

    def resolved(self, d_model: int | None, owner: Tokens | None) -> Features:
        return self.model_copy(update={"d_model": self.d_model or d_model})

    def shape(self, batch_time: Shape) -> Shape:
        return (*batch_time, self.size)

    def vectors(self, b: Builder, data: Value, around: Around) -> Value:
        """x[B, T, size] -> [B, T, D]. Padding is set to zero first, so that a NaN there cannot spread."""
        x = b.add(ZeroPadding(), data, around.mask)
        return x if self.d_model is None else b.add(Linear(self.size, self.d_model), x, name="input_proj")
