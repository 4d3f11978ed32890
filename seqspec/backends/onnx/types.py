"""Element types and sizes, from the graph's to ONNX's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import onnx_ir as ir

from seqspec.graph.dims import PAST, TIME, TOTAL, Shape, Size, dim

ELEMENTS: dict[str, ir.DataType] = {
    "float32": ir.DataType.FLOAT,
    "float64": ir.DataType.DOUBLE,
    "float16": ir.DataType.FLOAT16,
    "bfloat16": ir.DataType.BFLOAT16,
    "int64": ir.DataType.INT64,
    "int32": ir.DataType.INT32,
    "uint8": ir.DataType.UINT8,
    "bool": ir.DataType.BOOL,
}

_BOOLEAN = frozenset(
    ["And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"]
)
_INTEGER = frozenset(["ArgMax", "ArgMin", "NonZero", "Shape", "Size"])
_SECOND = frozenset({"Where"})  # the first input is a condition
_TOTAL = dim(PAST) + dim(TIME)


def element(dtype: str, model_dtype: str) -> ir.DataType:
    """The ONNX element type of a graph dtype, in a model that computes in `model_dtype`."""
    return ELEMENTS[model_dtype if dtype == "float" else dtype]


def onnx_shape(shape: Shape) -> ir.Shape:
    """A shape with named sizes; past + new is called the total."""
    return ir.Shape([size_name(size) for size in shape])


def size_name(size: Size) -> int | str:
    """The ONNX name of a size: `8`, `batch_size`, `total_sequence_length`, `2*sequence_length + 1`."""
    if isinstance(size, int):
        return size
    return TOTAL if size == _TOTAL else str(size)


def output_element(
    op_type: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any]
) -> ir.DataType | None:
    """The element type of an ONNX op's output: a fixed one, or that of its input."""
    if op_type == "Cast":
        return ir.DataType(attributes["to"])
    if op_type in _BOOLEAN:
        return ir.DataType.BOOL
    if op_type in _INTEGER:
        return ir.DataType.INT64
    source = inputs[1 if op_type in _SECOND else 0] if inputs else None
    return source.dtype if source is not None else None


def numpy_dtype(kind: ir.DataType) -> numpy.dtype[Any]:
    """The NumPy dtype that holds an element type."""
    return kind.numpy()
