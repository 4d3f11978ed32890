"""The writer of a main graph: weights and constants are its initializers, contributed ops bring their functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import onnx_ir as ir

from seqspec.backends.onnx.functions import Functions
from seqspec.backends.onnx.tensors import Make, Tensors
from seqspec.backends.onnx.types import element, numpy_dtype
from seqspec.backends.onnx.writer import Writer
from seqspec.graph.dims import Shape
from seqspec.graph.ir import join
from seqspec.ops.fused import FusedOp


class MainWriter(Writer):
    """Implements `ops.base.OnnxWriter`."""

    def __init__(self, tensors: Tensors, reserved: Sequence[str]) -> None:
        super().__init__(tensors.dtype, reserved)
        self.tensors = tensors
        self.functions = Functions(tensors.dtype)
        self.initializers: dict[object, ir.Value] = {}

    def derived(self, tag: str, shape: Shape, make: Make, *leaves: str) -> ir.Value:
        sources = [join(self.scope, leaf) for leaf in leaves]
        name = join(sources[0] if len(sources) == 1 else self.scope, tag)
        return self._initializer((*sources, tag), name, lambda n: self.tensors.derived(n, tag, shape, make, sources))

    def const(self, values: Any, dtype: str = "float") -> ir.Value:
        kind = element(dtype, self.dtype)
        array = numpy.asarray(values, numpy_dtype(kind))
        text = ",".join(map(str, array.ravel().tolist())) if array.size <= 4 else f"{array.size} values"
        name = f"{kind.name.lower()}{list(array.shape) if array.ndim else ''}({text})"
        key = (kind, array.shape, array.tobytes())
        return self._initializer(key, name, lambda n: ir.Tensor(array, dtype=kind, name=n))

    def contributed(self, op: FusedOp, args: tuple[ir.Value, ...]) -> list[ir.Value]:
        inputs = [*args, *map(self.param, op.parameters)]
        overload = self.functions.overload(op)
        made = self._once(op.op_type, op.domain, overload, inputs, dict(op.attributes), op.count)
        return [made[slot] for slot in op.slots]

    def _param(self, path: str) -> ir.Value:
        return self._initializer((path,), path, lambda _: self.tensors.param(path))

    def _initializer(self, key: object, name: str, make: Callable[[str], Any]) -> ir.Value:
        if key not in self.initializers:
            value = self._value(self._free(name), 0)
            tensor = make(str(value.name))
            value.const_value, value.shape, value.dtype = tensor, tensor.shape, tensor.dtype
            self.initializers[key] = value
        return self.initializers[key]
