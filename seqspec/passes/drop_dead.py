"""Removes nodes that nothing reads. Nodes with a state stay, since their present is an output of the model."""

from __future__ import annotations

from dataclasses import replace

from seqspec.graph.ir import Graph, Region
from seqspec.passes.rewrite import nodes


def drop_dead(graph: Graph) -> Graph:
    """The graph with only the nodes that an output or a present depends on."""
    region = graph.root
    read = {v.name for v in region.outputs}
    kept = []
    for node in reversed(nodes(region)):
        if node.states or any(v.name in read for v in node.outputs):
            kept.append(node)
            read.update(v.name for v in node.inputs if v is not None)
    return replace(graph, root=Region(region.name, region.inputs, tuple(reversed(kept)), region.outputs))
