"""The writer of a main graph: weights and constants are its initializers, contributed ops bring their functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy
import onnx_ir as ir

from seqspec.backends.onnx.functions import LOCAL, Functions
from seqspec.backends.onnx.tensors import Make, Tensors
from seqspec.backends.onnx.types import element, numpy_dtype
from seqspec.backends.onnx.writer import Arguments, Writer
from seqspec.graph.dims import Shape
from seqspec.graph.ir import Value, join
from seqspec.graph.types import Type
from seqspec.ops.fused import FusedOp


class MainWriter(Writer):
    """Implements `ops.base.OnnxWriter`."""

    def __init__(self, tensors: Tensors, reserved: Sequence[str]) -> None:
        super().__init__(tensors.dtype, reserved)
        self.tensors = tensors
        self.functions = Functions(tensors.dtype)
        self.initializers: dict[object, ir.Value] = {}

    def derived(self, tag: str, shape: Shape, make: Make, *leaves: str, dtype: str = "float") -> ir.Value:
        sources = [join(self.scope, leaf) for leaf in leaves]
        name = join(sources[0] if len(sources) == 1 else self.scope if sources else "", tag)
        kind = element(dtype, self.dtype)
        return self._initializer(
            (*sources, tag), name, lambda n: self.tensors.derived(n, tag, shape, kind, make, sources)
        )

    def const(self, values: Any, dtype: str = "float") -> ir.Value:
        kind = element(dtype, self.dtype)
        array = numpy.asarray(values, numpy_dtype(kind))
        text = ",".join(map(str, array.ravel().tolist())) if array.size <= 4 else f"{array.size} values"
        name = f"{kind.name.lower()}{list(array.shape) if array.ndim else ''}({text})"
        key = (kind, array.shape, array.tobytes())
        return self._initializer(key, name, lambda n: ir.Tensor(array, dtype=kind, name=n))

    def contributed(self, op: FusedOp, args: Arguments, pasts: Arguments) -> list[ir.Value]:
        condition = op.condition(self, args)
        if condition is None:
            return self._kernel(op, args, pasts)
        branches = (lambda: self._kernel(op, args, pasts), lambda: op.otherwise(self, args, pasts))
        return self.either(condition, [args[0], *pasts], *branches)

    def function(
        self,
        name: str,
        types: Sequence[Type],
        variant: Hashable,
        write: Callable[..., Sequence[ir.Value]],
        *inputs: ir.Value,
    ) -> list[ir.Value]:
        overload = self.functions.local(name, variant, write, len(inputs))
        made = self._once(name, LOCAL, overload, inputs, {}, len(types))
        for value, type_ in zip(made, types, strict=True):
            self.type(value, Value("", type_.shape, type_.dtype))
        return made

    def _kernel(self, op: FusedOp, args: Arguments, pasts: Arguments) -> list[ir.Value]:
        inputs = op.feeds(self, args, pasts)
        made = self._once(op.op_type, op.domain, self.functions.of(op), inputs, dict(op.attributes), op.count)
        outputs = [made[slot] for slot in op.slots]
        for value, known in zip(outputs, op.body.outputs, strict=True):
            self.type(value, known)
        return outputs

    def _param(self, path: str) -> ir.Value:
        return self._initializer((path,), path, lambda _: self.tensors.param(path))

    def _initializer(self, key: object, name: str, make: Callable[[str], Any]) -> ir.Value:
        if key not in self.initializers:
            value = self._value(self._free(name), 0)
            tensor = make(str(value.name))
            value.const_value, value.shape, value.dtype = tensor, tensor.shape, tensor.dtype
            self.initializers[key] = value
        return self.initializers[key]
