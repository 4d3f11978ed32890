"""Settles optional inputs: each becomes required or is removed, and a padding mask is always given whole.

In PyTorch a mask or position_ids may be left out. A file has a fixed set of inputs, so there the mask is required and
covers past and new tokens. It need not be carried, and `Padding` becomes a cast of it. A given initial state is removed
too, since the past of the first call takes its place.
"""

from __future__ import annotations

from dataclasses import replace

from seqspec.graph.ir import Graph, Node, Value
from seqspec.ops.padding import Padding
from seqspec.ops.to_bool import ToBool
from seqspec.passes.initial import starting
from seqspec.passes.rewrite import nodes, retyped

ABSENT = frozenset({"position_ids", "decoder_position_ids"})


def bind(graph: Graph, absent: frozenset[str] = ABSENT) -> Graph:
    """The graph without the optional inputs named in `absent`, and with the other optional ones required."""
    starts = starting(graph.root)
    never = {v.name for v in graph.root.inputs if v.name in absent or v.name in starts}
    gone: dict[str, Value | None] = {v.name: None for v in graph.root.inputs if v.optional and v.name in never}
    inputs = tuple(replace(v, optional=False) for v in graph.root.inputs if v.name not in gone)
    given = {v.name for v in inputs}
    items = [_whole_mask(node, given) for node in nodes(graph.root)]
    return Graph(retyped(graph.root, inputs, items, gone), graph.once - gone.keys())


def _whole_mask(node: Node, given: set[str]) -> Node:
    mask = node.inputs[1] if isinstance(node.op, Padding) else None
    if mask is None or mask.name not in given:
        return node
    return replace(node, op=ToBool(), inputs=(mask,))
