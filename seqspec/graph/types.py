"""What a shape rule says: the types of an op's outputs, or that its inputs do not fit."""

from __future__ import annotations

from typing import Literal, NamedTuple

from seqspec.graph.dims import Shape

DType = Literal["float", "float32", "int64", "int32", "bool"]
"""`float` is the dtype the model computes in; `float32` stays float32 whatever that is."""


class ShapeError(Exception):
    """Inputs an op cannot take: becomes a diagnostic at `origin`, the YAML path."""

    def __init__(self, message: str, origin: str = "") -> None:
        super().__init__(message)
        self.origin = origin


class Type(NamedTuple):
    """Shape and dtype of an output."""

    shape: Shape
    dtype: DType = "float"
    optional: bool = False  # may be None at run time, as a mask is where nothing is masked
