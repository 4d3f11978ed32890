"""Passes bfloat16 to and from onnxruntime, which does not support it as NumPy arrays, since NumPy lacks the type."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from seqspec.runtime.providers import runtime
from seqspec.runtime.state import Array

_ONNX_TYPE = 16


def run(graph: Any, wanted: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    """`graph.run` for arrays of any type, ml_dtypes.bfloat16 included."""
    given = {name: _value(array) for name, array in feeds.items()}
    return [_array(value) for value in graph.run_with_ort_values(list(wanted), given)]


def _value(array: Array) -> Any:
    kind = runtime().OrtValue
    array = np.ascontiguousarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        return kind.ortvalue_from_numpy_with_onnx_type(array, _ONNX_TYPE)
    return kind.ortvalue_from_numpy(array)


def _array(value: Any) -> Array:
    """A copy of the value, which lies in the CPU's memory as all outputs do."""
    if value.data_type() != "tensor(bfloat16)":
        return np.asarray(value.numpy())
    shape = tuple(value.shape())
    bits = (ctypes.c_uint16 * prod(shape)).from_address(value.data_ptr()) if prod(shape) else b""
    return np.asarray(np.frombuffer(bits, np.uint16).copy().view(ml_dtypes.bfloat16).reshape(shape))
