"""Moves nodes that only the else branches of several Ifs read into the first of these branches.

The fallbacks of a kernel share a mask and rotary tables. The first If hands them on to the others, as further outputs,
which are empty tensors where the kernel is used. An If of their own would cost as much as one around a kernel.
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
    for nodes in asking.values():
        if len(nodes) > 1:
            _sink(graph, nodes)


def _sink(graph: ir.Graph, asking: list[ir.Node]) -> None:
    inside = {id(node) for asked in asking for node in _branch(asked, "else_branch").all_nodes()}
    early = list(_early(graph))
    sunk: list[ir.Node] = []
    for node in reversed(early):
        uses = [use.node for value in node.outputs for use in value.uses()]
        if uses and all(id(n) in inside for n in uses) and not any(v.is_graph_output() for v in node.outputs):
            inside.add(id(node))
            sunk.append(node)
    if sunk:
        graph.remove(sunk)
        _hand_on(asking[0], sunk[::-1])


def _hand_on(first: ir.Node, sunk: list[ir.Node]) -> None:
    """Puts nodes into the else branch of `first`, and gives what others read of them as outputs of `first`."""
    kernel, needed = _branch(first, "then_branch"), _branch(first, "else_branch")
    needed.insert_before(next(iter(needed)), sunk)
    within = {id(node) for node in needed.all_nodes()}
    crossing = [v for n in sunk for v in n.outputs if any(id(use.node) not in within for use in v.uses())]
    nothing = [_empty(value) for value in crossing]
    kernel.extend(nothing)
    kernel.outputs.extend(node.outputs[0] for node in nothing)
    needed.outputs.extend(crossing)
    count = len(first.outputs)
    first.resize_outputs(count + len(crossing))
    for value, new in zip(crossing, first.outputs[count:], strict=True):
        new.name, new.type, new.shape = f"{value.name}/where_needed", value.type, _own_sizes(value)
        for use in tuple(value.uses()):
            if id(use.node) not in within:
                use.node.replace_input_with(use.idx, new)


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


def _branch(node: ir.Node, name: str) -> ir.Graph:
    return node.attributes[name].as_graph()


def _empty(value: ir.Value) -> ir.Node:
    """A tensor without elements, of the value's rank."""
    assert value.shape is not None
    assert value.dtype is not None
    shape = [size if isinstance(size, int) else 0 for size in value.shape]
    tensor = ir.Tensor(numpy.zeros(shape, numpy_dtype(value.dtype)), dtype=value.dtype)
    name = f"{value.name}/empty"
    made = ir.Value(name=name, type=value.type, shape=ir.Shape(shape))
    return ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], outputs=[made], name=name)
