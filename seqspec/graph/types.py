"""The results of a shape rule: the types of an op's outputs, or the error that its inputs do not fit."""

from __future__ import annotations

from typing import Literal, NamedTuple

from seqspec.graph.dims import Shape

DType = Literal["float", "float32", "int64", "int32", "bool"]
"""`float` is the dtype that the model computes in; `float32` is float32 whatever that dtype is."""


class ShapeError(Exception):
    """An op cannot take these inputs. Becomes a diagnostic at `origin`, the YAML path."""

    def __init__(self, message: str, origin: str = "") -> None:
        super().__init__(message)
        self.origin = origin


class Type(NamedTuple):
    """The type of an op's output."""

    shape: Shape
    dtype: DType = "float"
    optional: bool = False  # may be None at run time, like a mask when nothing is masked
