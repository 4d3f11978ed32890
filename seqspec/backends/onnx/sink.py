"""Moves nodes that only the else branches of several Ifs read into an If of their own, so that they run only if needed.

The fallbacks of a kernel share a mask and rotary tables. These are computed before the first of the Ifs, by an If with
the same condition, which gives empty tensors where the kernel is used.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import onnx_ir as ir

from seqspec.backends.onnx.types import numpy_dtype


def sink(graph: ir.Graph) -> None:
    """For each condition that several Ifs of the graph ask."""
    asking: dict[ir.Value, list[ir.Node]] = {}
    for node in graph:
        if node.op_type == "If" and node.inputs[0] is not None:
            asking.setdefault(node.inputs[0], []).append(node)
    for condition, nodes in asking.items():
        if len(nodes) > 1:
            _sink(graph, condition, nodes)


def _sink(graph: ir.Graph, condition: ir.Value, asking: list[ir.Node]) -> None:
    inside = {id(node) for asked in asking for node in _branch(asked).all_nodes()}
    early = list(_early(graph))
    sunk: list[ir.Node] = []
    for node in reversed(early):
        uses = [use.node for value in node.outputs for use in value.uses()]
        if uses and all(id(n) in inside for n in uses) and not any(v.is_graph_output() for v in node.outputs):
            inside.add(id(node))
            sunk.append(node)
    if not sunk:
        return
    sunk.reverse()
    within = {id(node) for node in sunk}
    crossing = [v for n in sunk for v in n.outputs if any(id(u.node) not in within for u in v.uses())]
    made = [ir.Value(name=f"{v.name}/where_needed", type=v.type, shape=_own_sizes(v)) for v in crossing]
    for value, new in zip(crossing, made, strict=True):
        for use in tuple(value.uses()):
            if id(use.node) not in within:
                use.node.replace_input_with(use.idx, new)
    graph.remove(sunk)
    needed = ir.Graph([], crossing, nodes=sunk, name="needed")
    nothing = [_empty(value) for value in crossing]
    empty = ir.Graph([], [node.outputs[0] for node in nothing], nodes=nothing, name="not_needed")
    branches = [ir.AttrGraph("then_branch", empty), ir.AttrGraph("else_branch", needed)]
    name = f"{condition.name}/where_needed"
    graph.insert_before(asking[0], ir.Node("", "If", [condition], branches, outputs=made, name=name))


def _own_sizes(value: ir.Value) -> ir.Shape | None:
    """Sizes that nothing else has: where it is not needed a value is empty, whatever its sizes are called.

    onnxruntime gives values whose sizes have the same names the same memory, one after the other.
    """
    if value.shape is None:
        return None
    return ir.Shape([d if isinstance(d, int) else f"{value.name}/{axis}" for axis, d in enumerate(value.shape)])


def _early(graph: ir.Graph) -> Iterator[ir.Node]:
    """The nodes that can be made before any If or loop, wherever they stand."""
    late: set[int] = set()
    for node in graph:
        read = [v.producer() for v in node.inputs if v is not None]
        if node.op_type in ("If", "Scan", "Loop") or any(id(n) in late for n in read):
            late.add(id(node))
        else:
            yield node


def _branch(node: ir.Node) -> ir.Graph:
    return node.attributes["else_branch"].as_graph()


def _empty(value: ir.Value) -> ir.Node:
    """A tensor without elements, of the value's rank."""
    assert value.shape is not None
    assert value.dtype is not None
    shape = [size if isinstance(size, int) else 0 for size in value.shape]
    tensor = ir.Tensor(numpy.zeros(shape, numpy_dtype(value.dtype)), dtype=value.dtype)
    name = f"{value.name}/empty"
    made = ir.Value(name=name, type=value.type, shape=ir.Shape(shape))
    return ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], outputs=[made], name=name)
