"""Expands fused ops: the inverse of every fusion and every choice of a Scan, up to the order of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from seqspec.graph.ir import Graph, Node, Value, join
from seqspec.ops.fused import FusedOp
from seqspec.ops.scanned import Scanned
from seqspec.passes.rewrite import nodes, with_items


def expand(graph: Graph) -> Graph:
    """Every fused op replaced by its body, and a Scan by its layer."""
    return with_items(graph, (part for node in nodes(graph.root) for part in _parts(node)))


def _parts(node: Node) -> Iterator[Node]:
    if isinstance(node.op, Scanned):
        yield replace(node, op=node.op.layer)
        return
    if not isinstance(node.op, FusedOp):
        yield node
        return
    body = node.op.body
    known: dict[str, Value | None] = dict(zip((v.name for v in body.inputs), node.inputs, strict=True))
    known.update(zip((v.name for v in body.outputs), node.outputs, strict=True))
    for part in nodes(body):
        inputs = tuple(v and known[v.name] for v in part.inputs)
        for v in part.outputs:
            known.setdefault(v.name, replace(v, name=join(node.name, v.name)))
        outputs = tuple(o for v in part.outputs if (o := known[v.name]) is not None)
        yield Node(part.op, inputs, outputs, join(node.name, part.name), node.origin)
