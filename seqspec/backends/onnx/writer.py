"""The OnnxWriter that op faces are handed: each node written once, in the outermost graph it can be in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import onnx_ir as ir

from seqspec.backends.onnx.attributes import attribute, frozen
from seqspec.backends.onnx.functions import Functions
from seqspec.backends.onnx.tensors import Make, Tensors
from seqspec.backends.onnx.types import element, numpy_dtype, onnx_shape, output_element
from seqspec.graph.dims import Dim, Shape
from seqspec.graph.ir import Node, Param, Region, Value, join


@dataclass
class Block:
    """The main graph, or the body of a Scan: its nodes so far, and which values each distinct node gave."""

    nodes: list[ir.Node] = field(default_factory=list)
    known: dict[tuple[object, ...], list[ir.Value]] = field(default_factory=dict)


class Writer:
    """Implements `ops.base.OnnxWriter`.

    A node that depends on nothing of a loop's body is written outside it. Names are the op's path and the node's type.
    """

    def __init__(self, tensors: Tensors, reserved: Sequence[str] = ()) -> None:
        self.tensors, self.dtype = tensors, tensors.dtype
        self.blocks = [Block()]
        self.initializers: dict[object, ir.Value] = {}
        self.measured: dict[Dim, tuple[ir.Value, int]] = {}
        self.presents: dict[str, ir.Value] = {}
        self.functions = Functions()
        self.scope = ""
        self._depths: dict[ir.Value, int] = {}
        self._shapes: dict[ir.Value, Shape] = {}
        self._names = Counter(reserved)

    # the graph

    def input(self, name: str, value: Value, depth: int = 0) -> ir.Value:
        """An input of the main graph, or of the body at `depth`."""
        made = self._value(name, depth)
        self._type(made, value)
        if depth == 0:
            for axis, size in enumerate(value.shape):
                if isinstance(size, Dim):
                    self.measured.setdefault(size, (made, axis))
        return made

    def lower(
        self, region: Region, scope: str, arguments: Sequence[ir.Value | None], past: Mapping[str, ir.Value]
    ) -> list[ir.Value | None]:
        """The nodes of a flat region; its presents join `presents`. `past` is by full path."""
        known: dict[str, ir.Value | None] = dict(zip((v.name for v in region.inputs), arguments, strict=True))

        def read(value: Value | None) -> ir.Value | None:
            if isinstance(value, Param):
                return self._param(join(scope, value.name))
            return None if value is None else known[value.name]

        outer = self.scope
        for node in region.items:
            assert isinstance(node, Node), "a call is left: inline first"
            self.scope = join(scope, node.name)
            states = [(join(scope, s.name), s.output) for s in node.states]
            outputs = node.op.onnx(self, *map(read, node.inputs), *(past.get(path) for path, _ in states))
            for value, made in zip(node.outputs, outputs, strict=True):
                known[value.name] = made
                if made is not None:
                    self._type(made, value)
            self.presents |= {path: outputs[number] for path, number in states}
        self.scope = outer
        return [read(v) for v in region.outputs]

    def own(self, value: ir.Value, name: str, taken: set[ir.Value]) -> ir.Value:
        """`value` as an output called `name`: copied where it is an input, a weight or an output already."""
        if value.producer() is None or value in taken or self._depths[value] < len(self.blocks) - 1:
            copy = self._node("Identity", "", [value], {}, 1, len(self.blocks) - 1)[0]
            copy.shape, copy.type = value.shape, value.type
            value = copy
        if name:
            value.name = name
        taken.add(value)
        return value

    # what faces call

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self.many(op_type, 1, *inputs, **attributes)[0]

    def many(
        self, op_type: str, count: int, *inputs: ir.Value | None, domain: str = "", **attributes: Any
    ) -> list[ir.Value]:
        depth = max((self._depths[v] for v in inputs if v is not None), default=0)
        key = (op_type, domain, count, tuple(map(id, inputs)), frozen(attributes))
        known = self.blocks[depth].known
        if key not in known:
            known[key] = self._node(op_type, domain, inputs, attributes, count, depth)
        return known[key]

    def param(self, leaf: str) -> ir.Value:
        return self._param(join(self.scope, leaf))

    def derived(self, tag: str, shape: Shape, make: Make, *leaves: str) -> ir.Value:
        sources = [join(self.scope, leaf) for leaf in leaves]
        name = join(sources[0] if len(sources) == 1 else self.scope, tag)
        return self._initializer((*sources, tag), name, lambda n: self.tensors.derived(n, tag, shape, make, sources))

    def ints(self, *values: int) -> ir.Value:
        return self.const(list(values), "int64")

    def scalar(self, value: float, dtype: str = "float") -> ir.Value:
        return self.const(value, dtype)

    def const(self, values: Any, dtype: str = "float") -> ir.Value:
        kind = element(dtype, self.dtype)
        array = numpy.asarray(values, numpy_dtype(kind))
        text = ",".join(map(str, array.ravel().tolist())) if array.size <= 4 else f"{array.size} values"
        name = f"{kind.name.lower()}{'' if array.ndim == 0 else list(array.shape)}({text})"
        key = (kind, array.shape, array.tobytes())
        return self._initializer(key, name, lambda n: ir.Tensor(array, dtype=kind, name=n))

    def cast(self, x: ir.Value, dtype: str) -> ir.Value:
        kind = element(dtype, self.dtype)
        return x if x.dtype == kind else self.Cast(x, to=int(kind))

    def size(self, x: ir.Value, axis: int) -> ir.Value:
        if x in self._shapes:
            axis %= len(self._shapes[x])
            size = self._shapes[x][axis]
            if isinstance(size, int):
                return self.ints(size)
            x, axis = self.measured.get(size, (x, axis))
        end = {"end": axis + 1} if axis != -1 else {}
        return self.Shape(x, start=axis, **end)

    def scan(self, body: Region, carried: int, scanned: int, args: Sequence[ir.Value | None]) -> list[ir.Value]:
        moving, fixed = args[: carried + scanned], args[carried + scanned :]
        self.blocks.append(Block())
        depth = len(self.blocks) - 1
        inputs = [self.input(self._free(f"{self.scope}/{v.name}"), v, depth) for v in body.inputs[: len(moving)]]
        taken: set[ir.Value] = set()
        outputs = [
            self.own(v, "", taken) for v in self.lower(body, self.scope, [*inputs, *fixed], {}) if v is not None
        ]
        nodes = self.blocks.pop().nodes
        graph = ir.Graph(inputs, outputs, nodes=nodes, name=self._free(f"{self.scope}/{body.name}"))
        axes = {"scan_input_axes": [1] * scanned, "scan_output_axes": [1] * (len(outputs) - carried)}
        attributes = {"body": graph, "num_scan_inputs": scanned, **axes}
        return self._node("Scan", "", moving, attributes, len(outputs), depth - 1)

    # making values

    def _param(self, path: str) -> ir.Value:
        return self._initializer((path,), path, lambda _: self.tensors.param(path))

    def _initializer(self, key: object, name: str, make: Callable[[str], Any]) -> ir.Value:
        if key not in self.initializers:
            value = self._value(self._free(name), 0)
            tensor = make(str(value.name))
            value.const_value, value.shape, value.dtype = tensor, tensor.shape, tensor.dtype
            self.initializers[key] = value
        return self.initializers[key]

    def _node(
        self,
        op_type: str,
        domain: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any],
        count: int,
        depth: int,
    ) -> list[ir.Value]:
        name = self._free(f"{self.scope}/{op_type}" if self.scope else op_type)
        outputs = [self._value(name if count == 1 else f"{name}.{k}", depth) for k in range(count)]
        kind = output_element(op_type, inputs, dict(attributes))
        for value in outputs:
            value.type = None if kind is None else ir.TensorType(kind)
        written = [attribute(op_type, domain, k, v) for k, v in attributes.items() if v is not None]
        node = ir.Node(domain, op_type, inputs, written, outputs=outputs, name=name)
        self.blocks[depth].nodes.append(node)
        return outputs

    def _value(self, name: str, depth: int) -> ir.Value:
        value = ir.Value(name=name)
        self._depths[value] = depth
        return value

    def _type(self, made: ir.Value, value: Value) -> None:
        """What the graph knows of a value; the first to say so wins where two are one."""
        if made not in self._shapes and made.const_value is None:
            self.retype(made, value)

    def retype(self, made: ir.Value, value: Value) -> None:
        """Gives `made` the type of `value`."""
        self._shapes[made] = value.shape
        made.shape, made.dtype = onnx_shape(value.shape), element(value.dtype, self.dtype)

    def _free(self, name: str) -> str:
        self._names[name] += 1
        count = self._names[name]
        return name if count == 1 else self._free(f"{name}_{count}")
