"""Model-local functions, which define contributed ops in plain opset 23 for runtimes without a kernel for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy
import onnx_ir as ir

from seqspec.backends.onnx.attributes import OPSET, attribute
from seqspec.backends.onnx.types import element, numpy_dtype
from seqspec.backends.onnx.writer import Writer
from seqspec.graph.dims import Shape
from seqspec.ops.fused import FusedOp

LOCAL = "seqspec"
"""The domain of functions that do not stand for a kernel."""


class Functions:
    """The functions of one model. Equal ones are stored once; others of the same name differ by `overload`."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self._made: dict[tuple[str, ...], ir.Function] = {}
        self._overloads: dict[Hashable, tuple[object, str]] = {}

    def all(self) -> list[ir.Function]:
        """In the order of their first use."""
        return list(self._made.values())

    def of(self, op: FusedOp) -> str:
        """The overload that defines `op`, written on first use."""
        # by identity; keeping the op keeps its id unique
        if id(op) not in self._overloads:
            self._overloads[id(op)] = (op, self._stored(_of_kernel(op, self.dtype)))
        return self._overloads[id(op)][1]

    def local(self, name: str, variant: Hashable, write: Callable[..., Sequence[ir.Value]], inputs: int) -> str:
        """Which overload of `LOCAL`.`name` is this variant."""
        if (name, variant) not in self._overloads:
            writer = FunctionWriter([f"input_{n}" for n in range(inputs)], {}, self.dtype)
            outputs = [(v, f"output_{n}") for n, v in enumerate(write(writer, *writer.arguments))]
            self._overloads[name, variant] = (None, self._stored(writer.finish(LOCAL, name, outputs)))
        return self._overloads[name, variant][1]

    def _stored(self, function: ir.Function) -> str:
        key = (function.domain, function.name, *map(_line, function))
        if key not in self._made:
            count = sum(key[:2] == other[:2] for other in self._made)
            function.overload = str(count) if count else ""
            self._made[key] = function
        return self._made[key].overload


def _of_kernel(op: FusedOp, dtype: str) -> ir.Function:
    """A slot of the kernel that the body lacks repeats its first output."""
    writer = FunctionWriter(op.formals, dict(op.attributes), dtype)
    made = op.function(writer, *writer.arguments)
    slots = [(made[0], f"unused_{slot}") for slot in range(op.count)]
    for slot, value, known in zip(op.slots, made, op.body.outputs, strict=True):
        slots[slot] = (value, known.name)
    return writer.finish(op.domain, op.op_type, slots)


class FunctionWriter(Writer):
    """Writes a body whose parameters are inputs, and whose constants are nodes, since a function holds no weights.

    An attribute with the name and value of one of the kernel's refers to that, so that one function serves all values.
    """

    def __init__(self, formals: Sequence[str], attributes: Mapping[str, Any], dtype: str) -> None:
        super().__init__(dtype, formals)
        self.attributes = attributes
        self.arguments = [self._value(name, 0) for name in formals]

    def finish(self, domain: str, name: str, named: Sequence[tuple[ir.Value, str]]) -> ir.Function:
        """The function, without overload yet, its outputs under these names."""
        taken: set[ir.Value] = set()
        outputs = [self.own(value, output, taken) for value, output in named]
        graph = ir.Graph(self.arguments, outputs, nodes=self.blocks[0].nodes, opset_imports={"": OPSET})
        attributes = [ir.Attr(k, attribute("", domain, k, v).type, None) for k, v in self.attributes.items()]
        return ir.Function(domain, name, graph=graph, attributes=attributes)

    def derived(self, tag: str, shape: Shape, make: Callable[..., Any], *leaves: str, dtype: str = "float") -> ir.Value:
        raise AssertionError(f"a function cannot hold the derived weight {tag}")

    def const(self, values: Any, dtype: str = "float") -> ir.Value:
        kind = element(dtype, self.dtype)
        array = numpy.asarray(values, numpy_dtype(kind))
        key = ("Constant", kind, array.shape, array.tobytes())
        known = self.blocks[0].known
        if key not in known:
            known[key] = self._node("Constant", "", "", [], {"value": ir.Tensor(array, dtype=kind)}, 1, 0)
        return known[key][0]

    def _param(self, path: str) -> ir.Value:
        return next(v for v in self.arguments if v.name == path)

    def _node(
        self,
        op_type: str,
        domain: str,
        overload: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any],
        count: int,
        depth: int,
    ) -> list[ir.Value]:
        written = {
            k: ir.RefAttr(k, k, attribute(op_type, domain, k, v).type) if self.attributes.get(k) == v else v
            for k, v in attributes.items()
        }
        return super()._node(op_type, domain, overload, inputs, written, count, depth)


def _line(node: ir.Node) -> str:
    """A node of a function as text; names there are the same for the same body."""
    inputs = [v.name if v is not None else "" for v in node.inputs]
    return f"{[v.name for v in node.outputs]} = {node.op_type}{inputs} {sorted(map(str, node.attributes.values()))}"
