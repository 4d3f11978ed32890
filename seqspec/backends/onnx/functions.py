"""Model-local functions: what a contributed op means, in plain opset 23, for runtimes that have no kernel for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import onnx_ir as ir

from seqspec.backends.onnx.attributes import OPSET, attribute
from seqspec.backends.onnx.types import element, numpy_dtype
from seqspec.backends.onnx.writer import Writer
from seqspec.graph.dims import Shape
from seqspec.ops.fused import FusedOp


class Functions:
    """The functions of one model; equal ones are stored once, others of a name are told apart by `overload`."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self._made: dict[tuple[str, ...], ir.Function] = {}
        self._overloads: dict[int, tuple[FusedOp, str]] = {}  # by identity; the op is kept so that its id stays its own

    def all(self) -> list[ir.Function]:
        """In the order of their first use."""
        return list(self._made.values())

    def overload(self, op: FusedOp) -> str:
        """Which overload means `op`; it is written when none does yet."""
        if id(op) not in self._overloads:
            self._overloads[id(op)] = (op, self._written(op).overload)
        return self._overloads[id(op)][1]

    def _written(self, op: FusedOp) -> ir.Function:
        function = FunctionWriter(op, self.dtype).function()
        key = (op.domain, op.op_type, *map(_line, function))
        if key not in self._made:
            count = sum(key[:2] == other[:2] for other in self._made)
            function.overload = str(count) if count else ""
            self._made[key] = function
        return self._made[key]


class FunctionWriter(Writer):
    """Writes a body whose parameters are inputs, and whose constants are nodes, since a function holds no weights.

    An attribute with the name and value of one of the kernel's refers to that, so that one function serves all values.
    """

    def __init__(self, op: FusedOp, dtype: str) -> None:
        super().__init__(dtype)
        self.op = op
        self.arguments = [self._value(v.name, 0) for v in op.body.inputs]
        self.parameters = {leaf: self._value(leaf, 0) for leaf in op.parameters}

    def function(self) -> ir.Function:
        """The function, without overload yet; a slot of the kernel that the body lacks repeats its first output."""
        made = [v for v in self.lower(self.op.body, "", self.arguments, {}) if v is not None]
        slots = [(made[0], f"unused_{slot}") for slot in range(self.op.count)]
        for slot, value, known in zip(self.op.slots, made, self.op.body.outputs, strict=True):
            slots[slot] = (value, known.name)
        taken: set[ir.Value] = set()
        outputs = [self.own(value, name, taken) for value, name in slots]
        inputs = [*self.arguments, *self.parameters.values()]
        graph = ir.Graph(inputs, outputs, nodes=self.blocks[0].nodes, opset_imports={"": OPSET})
        attributes = [ir.Attr(k, attribute("", self.op.domain, k, v).type, None) for k, v in self.op.attributes]
        return ir.Function(self.op.domain, self.op.op_type, graph=graph, attributes=attributes)

    def derived(self, tag: str, shape: Shape, make: Callable[..., Any], *leaves: str) -> ir.Value:
        raise AssertionError(f"{self.op.op_type}: a function cannot hold the derived weight {tag}")

    def const(self, values: Any, dtype: str = "float") -> ir.Value:
        kind = element(dtype, self.dtype)
        array = numpy.asarray(values, numpy_dtype(kind))
        key = ("Constant", kind, array.shape, array.tobytes())
        known = self.blocks[0].known
        if key not in known:
            known[key] = self._node("Constant", "", "", [], {"value": ir.Tensor(array, dtype=kind)}, 1, 0)
        return known[key][0]

    def _param(self, path: str) -> ir.Value:
        return self.parameters[path]

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
        known = dict(self.op.attributes)
        written = {
            k: ir.RefAttr(k, k, attribute(op_type, domain, k, v).type) if known.get(k) == v else v
            for k, v in attributes.items()
        }
        return super()._node(op_type, domain, overload, inputs, written, count, depth)


def _line(node: ir.Node) -> str:
    """A node of a function as text; names there are the same for the same body."""
    inputs = [v.name if v is not None else "" for v in node.inputs]
    return f"{[v.name for v in node.outputs]} = {node.op_type}{inputs} {sorted(map(str, node.attributes.values()))}"
