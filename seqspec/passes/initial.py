"""Which inputs of a node replace an absent past, and which values only lead to these."""

from __future__ import annotations

from seqspec.graph.ir import Node, Region
from seqspec.ops.initial_state import GivenState, LearnedState
from seqspec.ops.loop import Loop
from seqspec.ops.recurrent import Recurrent
from seqspec.ops.state import SelectState
from seqspec.passes.rewrite import nodes


def initial_inputs(node: Node) -> range:
    """The positions of the initial values among the inputs, in the order of the node's states."""
    if isinstance(node.op, Loop):
        return range(node.op.carried)
    if isinstance(node.op, Recurrent):
        return range(2, len(node.inputs))  # after x and the mask
    return range(0)


def starting(region: Region) -> frozenset[str]:
    """Names of the values that only start a state: learned or given ones, up to the node that carries the state."""
    found: set[str] = set()
    for node in reversed(nodes(region)):
        if node.states:
            found |= {v.name for k in initial_inputs(node) if (v := node.inputs[k]) is not None}
        elif isinstance(node.op, SelectState | GivenState) and node.outputs[0].name in found:
            found |= {v.name for v in node.inputs[:1] if v is not None}
    return frozenset(found)


def learned(region: Region) -> frozenset[str]:
    """Names of the learned values among them."""
    start = starting(region)
    made = (n.outputs[0].name for n in nodes(region) if isinstance(n.op, LearnedState))
    return frozenset(name for name in made if name in start)
