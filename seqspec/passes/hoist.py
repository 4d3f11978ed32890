"""Computes before a loop what every step's own input adds to the gates of its cell, as one product for all steps.

A cell that attends reads [x; context], and only the context depends on the step before. A row by itself gains most: its
products read every weight at every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from seqspec.graph.ir import Graph, Node, Region, Value, join
from seqspec.ops.cells import Cell
from seqspec.ops.loop import Loop
from seqspec.ops.open_cell import InputGates, OpenCell
from seqspec.ops.shape import Concat
from seqspec.passes.drop_dead import drop_dead
from seqspec.passes.rewrite import nodes, with_items


def hoist(graph: Graph) -> Graph:
    """The flat graph with `InputGates` before every loop whose cell reads a step's own input first."""
    return with_items(graph, (new for node in nodes(graph.root) for new in _hoisted(node)))


def _hoisted(node: Node) -> Iterator[Node]:
    """The loop as it is, or the product and the loop without it."""
    loop = node.op
    cell, parts = _cell(loop) if isinstance(loop, Loop) else (None, ())
    if not isinstance(loop, Loop) or cell is None:
        yield node
        return
    assert isinstance(cell.op, Cell)
    name, own = join(node.name, cell.name), parts[0]
    at, end = loop.body.inputs.index(own), loop.carried + loop.scanned
    opened = OpenCell(cell.op, _width(own))
    owned = {p.name: replace(p, name=join(name, p.name)) for p in cell.op.params()}
    read = (node.inputs[at], *(owned[leaf] for leaf in ("weight_ih", *opened.added)))
    (made,) = InputGates().infer(*read)  # type: ignore[arg-type]
    gates, step = Value(f"{name}.gates", made.shape), Value(f"{own.name}.gates", (made.shape[0], made.shape[2]))
    yield Node(InputGates(), read, (gates,), origin=node.origin)
    body, given = _opened(loop.body, replace(cell, op=opened), parts, step), list(node.inputs)
    inputs = list(body.inputs)
    inputs.insert(end, step)
    given.insert(end, gates)
    unread = not any(own in n.inputs for n in nodes(body))
    if unread:
        del inputs[at], given[at]
    steps = replace(loop, body=replace(body, inputs=tuple(inputs)), scanned=loop.scanned + (not unread))
    yield replace(node, op=steps, inputs=tuple(given))


def _cell(loop: Loop) -> tuple[Node | None, tuple[Value, ...]]:
    """The cell whose first input is a step's own, and the values that it reads side by side."""
    joined = {n.outputs[0]: n.inputs for n in nodes(loop.body) if isinstance(n.op, Concat)}
    scanned = loop.body.inputs[loop.carried : loop.carried + loop.scanned]
    for node in nodes(loop.body):
        if isinstance(node.op, Cell):
            (x, *_) = node.inputs
            parts = tuple(v for v in joined.get(x, (x,)) if v is not None)  # type: ignore[arg-type]
            if parts[0] in scanned:
                return node, parts
    return None, ()


def _opened(body: Region, cell: Node, parts: tuple[Value, ...], gates: Value) -> Region:
    """The body with this cell in its place, and without what only the cell read."""
    own, *rest = parts
    before: list[Node] = []
    if len(rest) > 1:
        (made,) = Concat().infer(*rest)
        before = [Node(Concat(), tuple(rest), (Value(f"{own.name}.others", made.shape, made.dtype),))]
        rest = list(before[0].outputs)
    inputs = (gates, rest[0] if rest else None, *cell.inputs[1:])
    opened = [*before, replace(cell, inputs=inputs)]
    items = (new for n in nodes(body) for new in (opened if n.outputs == cell.outputs else [n]))
    return drop_dead(with_items(Graph(body), items)).root


def _width(value: Value) -> int:
    width = value.shape[-1]
    assert isinstance(width, int)
    return width
