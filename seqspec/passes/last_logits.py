"""Computes logits only at each row's last real position, and likewise what leads to them.

From the logits back to the last layer's attention, every positionwise op reads inputs shortened to that position, so
that a prompt costs neither the head nor the last feed-forward.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from seqspec.graph.dims import PAST, TIME, dim
from seqspec.graph.ir import Graph, Node, Param, Value
from seqspec.graph.signature import output_name
from seqspec.ops.pool import Pool
from seqspec.ops.shape import Unsqueeze
from seqspec.ops.to_bool import ToBool
from seqspec.passes.rewrite import nodes, outputs_of, retyped


def has_logits(graph: Graph) -> bool:
    """Whether there are logits at every position."""
    return any(output_name(v) == "logits" and _moves(v) for v in graph.root.outputs)


def last_logits(graph: Graph) -> Graph:
    """The flat graph with logits[B, 1, V]: at the last real position of the chunk."""
    region, items = graph.root, nodes(graph.root)
    (logits,) = (v for v in region.outputs if output_name(v) == "logits")
    short = _short(items, logits, {v.name for v in region.outputs})
    mask = _mask(items, logits)
    made: dict[str, Value] = {}
    rewritten: list[Node] = []

    def last(value: Value) -> Value:
        """`value` at the last real position, or zeros in a row without one."""
        if value.name not in made:
            batch, _, width = value.shape
            pooled = Value(f"{value.name}.pooled", (batch, width), value.dtype)
            made[value.name] = Value(f"{value.name}.last", (batch, 1, width), value.dtype)
            rewritten.append(Node(Pool("last"), (value, mask), (pooled,)))
            rewritten.append(Node(Unsqueeze(1), (pooled,), (made[value.name],)))
        return made[value.name]

    shortened = {v.name for node in short for v in node.outputs}
    kept = {id(node) for node in short}
    for node in items:
        if id(node) in kept:
            inputs = [last(v) if v is not None and _moves(v) and v.name not in shortened else v for v in node.inputs]
            node = replace(node, inputs=tuple(inputs))
        rewritten.append(node)
    renamed = {} if logits.name in shortened else {logits.name: last(logits)}
    short_region = retyped(region, region.inputs, rewritten, {})
    return replace(graph, root=replace(short_region, outputs=outputs_of(short_region, renamed)))


def _short(items: list[Node], logits: Value, public: set[str]) -> list[Node]:
    """The positionwise nodes that only lead to the logits."""
    readers: defaultdict[str, list[Node]] = defaultdict(list)
    for node in items:
        for value in node.inputs:
            if value is not None:
                readers[value.name].append(node)
    found: list[Node] = []
    wanted: set[int] = set()
    for node in reversed(items):
        (name, *others) = (v.name for v in node.outputs)
        alone = name == logits.name if name in public else bool(readers[name])
        read = [v for v in node.inputs if v is not None and not isinstance(v, Param) and len(v.shape) == 3]
        alike = node.op.positionwise and all(_moves(v) and v.shape[0] == logits.shape[0] for v in read)
        if alike and alone and not others and all(id(n) in wanted for n in readers[name]):
            wanted.add(id(node))
            found.append(node)
    return found


def _mask(items: list[Node], logits: Value) -> Value | None:
    """The mask of real positions."""
    batch, time, _ = logits.shape
    masks = [node.outputs[0] for node in items if isinstance(node.op, ToBool)]
    return next((m for m in masks if m.shape in ((batch, time), (batch, dim(PAST) + time))), None)


def _moves(value: Value | None) -> bool:
    """Whether a value has an axis of all positions of the chunk."""
    return value is not None and not isinstance(value, Param) and len(value.shape) == 3 and value.shape[1] == dim(TIME)
