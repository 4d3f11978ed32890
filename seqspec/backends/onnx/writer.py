"""The OnnxWriter that ops use: each node is written once, in the outermost graph possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from seqspec.backends.onnx.attributes import attribute, frozen
from seqspec.backends.onnx.types import element, onnx_shape, output_element
from seqspec.graph.dims import Dim, Shape
from seqspec.graph.ir import Node, Param, Region, Value, join
from seqspec.graph.types import Type
from seqspec.ops.fused import FusedOp

Arguments = Sequence[ir.Value | None]


@dataclass
class Block:
    """The main graph, a loop's body or an If's branch: its nodes so far, and their outputs by what they compute."""

    nodes: list[ir.Node] = field(default_factory=list)
    known: dict[tuple[object, ...], list[ir.Value]] = field(default_factory=dict)


class Writer:
    """The part of `ops.base.OnnxWriter` that the main graph and functions share.

    A node that does not depend on a loop's body is written outside of it. Nodes are named by the op's path and their
    type. Weights, constants and functions are left to `MainWriter` and `FunctionWriter`.
    """

    def __init__(self, dtype: str, reserved: Sequence[str] = ()) -> None:
        self.dtype, self.half = dtype, dtype != "float32"
        self.blocks = [Block()]
        self.presents: dict[str, ir.Value] = {}
        self.scope = ""
        self._measured: dict[Dim, tuple[ir.Value, int]] = {}
        self._depths: dict[ir.Value, int] = {}
        self._local: dict[ir.Value | None, int] = {}  # values that count as made in the branch being written
        self._shapes: dict[ir.Value, Shape] = {}
        self._names = Counter(reserved)

    # the graph

    def input(self, name: str, value: Value, depth: int = 0) -> ir.Value:
        """An input of the main graph, or of the body at `depth`."""
        made = self._value(name, depth)
        self.type(made, value)
        return made

    def lower(
        self, region: Region, scope: str, arguments: Arguments, past: Mapping[str, ir.Value]
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
                if made is not None and made not in self._shapes and made.const_value is None:
                    self.type(made, value)  # if two graph values are one here, the first type wins
            self.presents |= {path: outputs[number] for path, number in states}
        self.scope = outer
        return [read(v) for v in region.outputs]

    def own(self, value: ir.Value, name: str, taken: set[ir.Value]) -> ir.Value:
        """`value` as an output called `name`; a copy if it is an input, a weight or already an output."""
        depth = len(self.blocks) - 1
        if value.producer() is None or value in taken or self._depths[value] < depth:
            copy = self._node("Identity", "", "", [value], {}, 1, depth)[0]
            copy.shape, copy.type = value.shape, value.type
            value = copy
        if name:
            value.name = name
        taken.add(value)
        return value

    def type(self, made: ir.Value, value: Value) -> None:
        """Gives `made` the shape and element type of `value`."""
        self._shapes[made] = value.shape
        made.shape, made.dtype = onnx_shape(value.shape), element(value.dtype, self.dtype)
        if self._depths[made] == 0:
            for axis, size in enumerate(value.shape):
                if isinstance(size, Dim):
                    self._measured.setdefault(size, (made, axis))

    # what faces call

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self.many(op_type, 1, *inputs, **attributes)[0]

    def many(
        self, op_type: str, count: int, *inputs: ir.Value | None, domain: str = "", **attributes: Any
    ) -> list[ir.Value]:
        return self._once(op_type, domain, "", inputs, attributes, count)

    def param(self, leaf: str) -> ir.Value:
        return self._param(join(self.scope, leaf))

    def derived(self, tag: str, shape: Shape, make: Callable[..., Any], *leaves: str, dtype: str = "float") -> ir.Value:
        raise NotImplementedError

    def ints(self, *values: int) -> ir.Value:
        return self.const(list(values), "int64")

    def scalar(self, value: float, dtype: str = "float") -> ir.Value:
        return self.const(value, dtype)

    def const(self, values: Any, dtype: str = "float") -> ir.Value:
        raise NotImplementedError

    def cast(self, x: ir.Value, dtype: str) -> ir.Value:
        kind = element(dtype, self.dtype)
        return x if x.dtype == kind else self.Cast(x, to=int(kind))

    def size(self, x: ir.Value, axis: int) -> ir.Value:
        if x in self._shapes:
            axis %= len(self._shapes[x])
            size = self._shapes[x][axis]
            if isinstance(size, int):
                return self.ints(size)
            # all read it off one value, an input if one has it
            x, axis = self._measured.get(size, (x, axis))
        end = {"end": axis + 1} if axis != -1 else {}
        return self._once("Shape", "", "", [x], {"start": axis, **end}, 1, self._depths[x])[0]

    def scan(self, body: Region, carried: int, scanned: int, args: Arguments) -> list[ir.Value]:
        end = carried + scanned

        def write(*inputs: ir.Value) -> list[ir.Value | None]:
            return self.lower(body, self.scope, [*inputs, *args[end:]], {})

        return self._scan(body.name, write, args[:carried], args[carried:end], body.inputs[:end], {"axes": 1})

    def steps(
        self,
        write: Callable[..., Sequence[ir.Value]],
        states: Arguments,
        moving: Arguments,
        inputs: Sequence[Value],
        backward: bool = False,
    ) -> list[ir.Value]:
        return self._scan("Step", write, states, moving, inputs, {"directions": 1} if backward else {})

    def _scan(
        self,
        name: str,
        write: Callable[..., Sequence[ir.Value | None]],
        states: Arguments,
        moving: Arguments,
        described: Sequence[Value],
        settings: Mapping[str, int],
    ) -> list[ir.Value]:
        """`settings` hold for everything that is scanned."""
        self.blocks.append(Block())
        depth = len(self.blocks) - 1
        inputs = [self.input(self._free(f"{self.scope}/{v.name}"), v, depth) for v in described]
        made = write(*inputs)
        taken: set[ir.Value] = set()
        outputs = [self.own(v, "", taken) for v in made if v is not None]
        graph = ir.Graph(inputs, outputs, nodes=self.blocks.pop().nodes, name=self._free(f"{self.scope}/{name}"))
        attributes: dict[str, Any] = {"body": graph, "num_scan_inputs": len(moving)}
        for kind, value in settings.items():
            attributes[f"scan_input_{kind}"] = [value] * len(moving)
            attributes[f"scan_output_{kind}"] = [value] * (len(outputs) - len(states))
        return self._node("Scan", "", "", [*states, *moving], attributes, len(outputs), depth - 1)

    def contributed(self, op: FusedOp, args: Arguments, pasts: Arguments) -> list[ir.Value]:
        raise NotImplementedError

    def function(
        self,
        name: str,
        types: Sequence[Type],
        variant: Hashable,
        write: Callable[..., Sequence[ir.Value]],
        *inputs: ir.Value,
    ) -> list[ir.Value]:
        raise NotImplementedError

    def region(self, body: Region, args: Arguments, pasts: Arguments) -> list[ir.Value]:
        paths = (join(self.scope, s.name) for s in body.states)
        past = {path: value for path, value in zip(paths, pasts, strict=False) if value is not None}
        return [v for v in self.lower(body, self.scope, args, past) if v is not None]

    def either(
        self, condition: ir.Value, local: Arguments, *branches: Callable[[], Sequence[ir.Value]]
    ) -> list[ir.Value]:
        depth = len(self.blocks)
        outside = dict(self._local)
        graphs = []
        for name, branch in zip(("then_branch", "else_branch"), branches, strict=True):
            self.blocks.append(Block())
            self._local |= dict.fromkeys(local, depth)
            taken: set[ir.Value] = set()
            outputs = [self.own(v, "", taken) for v in branch()]
            self._local = dict(outside)
            nodes = self.blocks.pop().nodes
            graphs.append(ir.Graph([], outputs, nodes=nodes, name=self._free(f"{self.scope}/{name}")))
        attributes = dict(zip(("then_branch", "else_branch"), graphs, strict=True))
        made = self._node("If", "", "", [condition], attributes, len(graphs[0].outputs), depth - 1)
        for value, inner in zip(made, graphs[0].outputs, strict=True):
            value.type, value.shape = inner.type, inner.shape
            if inner in self._shapes:
                self._shapes[value] = self._shapes[inner]
        return made

    # making values

    def _param(self, path: str) -> ir.Value:
        raise NotImplementedError

    def _once(
        self,
        op_type: str,
        domain: str,
        overload: str,
        inputs: Arguments,
        attributes: Mapping[str, Any],
        count: int,
        depth: int | None = None,
    ) -> list[ir.Value]:
        """A node at `depth`, that of its inputs by default, or what an equal node gave before."""
        if depth is None:
            depth = max((self._local.get(v, self._depths[v]) for v in inputs if v is not None), default=0)
        key = (op_type, domain, overload, count, tuple(map(id, inputs)), frozen(attributes))
        known = self.blocks[depth].known
        if key not in known:
            known[key] = self._node(op_type, domain, overload, inputs, attributes, count, depth)
        return known[key]

    def _node(
        self,
        op_type: str,
        domain: str,
        overload: str,
        inputs: Arguments,
        attributes: Mapping[str, Any],
        count: int,
        depth: int,
    ) -> list[ir.Value]:
        name = self._free(f"{self.scope}/{op_type}" if self.scope else op_type)
        outputs = [self._value(name if count == 1 else f"{name}.{k}", depth) for k in range(count)]
        kind = output_element(op_type, inputs, attributes)
        for value in outputs:
            value.type = None if kind is None else ir.TensorType(kind)
        written = [attribute(op_type, domain, k, v) for k, v in attributes.items() if v is not None]
        node = ir.Node(domain, op_type, inputs, written, overload=overload, outputs=outputs, name=name)
        self.blocks[depth].nodes.append(node)
        return outputs

    def _value(self, name: str, depth: int) -> ir.Value:
        value = ir.Value(name=name)
        self._depths[value] = depth
        return value

    def _free(self, name: str) -> str:
        self._names[name] += 1
        count = self._names[name]
        return name if count == 1 else self._free(f"{name}_{count}")
