"""Removes nodes that nothing reads. Nodes with a state stay, since their present is an output of the model."""

from __future__ import annotations

from seqspec.graph.ir import Graph
from seqspec.passes.rewrite import nodes, with_items


def drop_dead(graph: Graph) -> Graph:
    """The graph with only the nodes that an output or a present depends on."""
    read = {v.name for v in graph.root.outputs}
    kept = []
    for node in reversed(nodes(graph.root)):
        if node.states or any(v.name in read for v in node.outputs):
            kept.append(node)
            read.update(v.name for v in node.inputs if v is not None)
    return with_items(graph, reversed(kept))
