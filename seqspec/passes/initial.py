"""Which inputs of a node stand in for a past that is not there."""

from __future__ import annotations

from seqspec.graph.ir import Node
from seqspec.ops.loop import Loop
from seqspec.ops.recurrent import Recurrent


def initial_inputs(node: Node) -> range:
    """The positions of the initial values among the inputs, in the order of the node's states."""
    if isinstance(node.op, Loop):
        return range(node.op.carried)
    if isinstance(node.op, Recurrent):
        return range(2, len(node.inputs))  # after x and the mask
    return range(0)
