"""Skips padding that all rows of a batch share: an encoder computes from the first real position to the last.

This helps callers who pad to a fixed length, and applies to models whose outputs have no axis of positions. Positions
and distances count real tokens, so no result changes.
"""

from __future__ import annotations

from dataclasses import replace

from seqspec.graph.dims import PAST, Size, names
from seqspec.graph.ir import Graph, Node, Region, Value
from seqspec.ops.to_bool import ToBool
from seqspec.ops.trim import TRIMMED, Trim
from seqspec.passes.rewrite import nodes, retyped, with_inputs


def trim(graph: Graph) -> Graph:
    """The flat graph of a stateless stack, computing on the trimmed input if all its ops allow that."""
    region, items = graph.root, nodes(graph.root)
    mask = next((n.outputs[0] for n in items if isinstance(n.op, ToBool)), None)
    if mask is None or region.states or not all(n.op.positionwise or n.op.by_order for n in items):
        return graph
    time = mask.shape[1]
    if PAST in names(time):
        return graph
    moving = [v for v in region.inputs if time in v.shape]
    if any(v.shape[:2] != mask.shape or time in v.shape[2:] for v in moving) or _shown(region, time):
        return graph
    (source,) = (n for n in items if n.outputs[0] is mask)
    given = [v for v in moving if v.name != source.inputs[0].name]  # type: ignore[union-attr]
    short = {v.name: Value(f"{v.name}.trimmed", (v.shape[0], TRIMMED, *v.shape[2:]), v.dtype) for v in (*given, mask)}
    cut = [Node(Trim(), (v, mask), (short[v.name],)) for v in (*given, mask)]
    rest = [with_inputs(n, short) for n in items if n is not source]
    return replace(graph, root=retyped(region, region.inputs, [source, *cut, *rest], {}))


def _shown(region: Region, time: Size) -> bool:
    """Whether an output shows positions, padded ones too: those are what every other form computes there."""
    return any(time in v.shape for v in region.outputs)
