"""Removes dropout, as an op and as an attribute, for inference."""

from __future__ import annotations

from dataclasses import replace

from seqspec.graph.ir import Call, Graph, Node, Region, Value
from seqspec.ops.attention import Attention
from seqspec.ops.base import Op
from seqspec.ops.dropout import Dropout
from seqspec.ops.recurrent import Recurrent
from seqspec.passes.bodies import with_bodies
from seqspec.passes.rewrite import nodes, outputs_of, read, with_inputs


def drop_dropout(graph: Graph) -> Graph:
    """The graph without dropout: what read a Dropout reads its input."""
    return replace(graph, root=_without(graph.root))


def _without(region: Region) -> Region:
    through: dict[str, Value | None] = {}
    items: list[Node | Call] = []
    for node in nodes(region):
        if isinstance(node.op, Dropout):
            through[node.outputs[0].name] = read(node.inputs[0], through)
        else:
            items.append(with_op(with_inputs(node, through), _inference(node.op)))
    return Region(region.name, region.inputs, tuple(items), outputs_of(region, through))


def _inference(op: Op) -> Op:
    if isinstance(op, Attention | Recurrent) and op.dropout:
        return replace(op, dropout=0.0)
    return with_bodies(op, _without)


def with_op(node: Node, op: Op) -> Node:
    """`node` with another op."""
    return node if op is node.op else replace(node, op=op)
