"""Splits a graph in two: what is computed once, and what is computed on every call.

A value is *once* if it depends on an input that is read on the first call only, and *late* if it depends on any other
input or on a past. What depends on neither (a table, a constant) goes wherever it is read. Two things cross from once
to late, under their names in the signature: held states, and values that start a state. A learned start is once, too;
it only needs the batch size of some input.
"""

from __future__ import annotations

from dataclasses import replace

from seqspec.graph.ir import Graph, Node, Param, Region, Value
from seqspec.graph.signature import Carried, carried
from seqspec.ops.cache import Hold
from seqspec.passes.drop_dead import drop_dead
from seqspec.passes.initial import initial_inputs, learned
from seqspec.passes.rewrite import nodes, outputs_of, with_inputs


def split(graph: Graph) -> tuple[Graph, Graph]:
    """The parts of a flat graph that run once and on every call. The inputs of the latter end with the held states."""
    sides = _Sides(graph)
    for node in nodes(graph.root):
        sides.place(node)
    return sides.encoder(), sides.decoder()


class _Sides:
    """The two parts while they are built, and the values that cross."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.region = graph, graph.root
        self.states = {s.path: s for s in carried(self.region.states)}
        self.once = {v.name for v in self.region.inputs if v.name in graph.once}
        self.late = {v.name for v in self.region.inputs if v.name not in graph.once}
        self.early_items: list[Node] = []
        self.late_items: list[Node] = []
        self.learned = learned(self.region)
        self.measure = next((v for v in self.region.inputs if v.name in graph.once), self.region.inputs[0])
        self.crossing: list[Value] = []  # outputs of the encoder
        self.held: dict[str, Value | None] = {}  # what a Hold gave -> input of the decoder

    def place(self, node: Node) -> None:
        """Adds a node to one part, or to both."""
        if isinstance(node.op, Hold):
            self._hold(node)
            return
        if node.outputs[0].name in self.learned:
            self.once.add(node.outputs[0].name)
            self.early_items.append(replace(node, inputs=(self.measure,)))
            return
        if node.states:
            node = self._started(node)
        read = {v.name for v in node.inputs if v is not None and not isinstance(v, Param)}
        late = bool(node.states) or not read.isdisjoint(self.late) or not read.isdisjoint(self.held)
        once = not read.isdisjoint(self.once)
        if late and once:
            raise AssertionError(f"{node.name} reads what is computed once without holding it")
        made = {v.name for v in node.outputs}
        if late:
            self.late |= made
        if once:
            self.once |= made
        if not late:
            self.early_items.append(node)
        if not once:
            self.late_items.append(with_inputs(node, self.held))

    def _hold(self, node: Node) -> None:
        state = self._state(node, 0)
        source, output = node.inputs[0], node.outputs[0]
        assert source is not None
        self.crossing.append(replace(source, hint=state.present))
        self.held[output.name] = replace(output, name=state.past, hint=state.past)

    def _started(self, node: Node) -> Node:
        """`node` without the initial values that the encoder can compute, which become the first past."""
        inputs = list(node.inputs)
        for number, index in enumerate(initial_inputs(node)):
            value = inputs[index]
            if value is not None and value.name not in self.late and value.name not in self.held:
                self.crossing.append(replace(value, hint=self._state(node, number).present))
                inputs[index] = None
        return replace(node, inputs=tuple(inputs))

    def _state(self, node: Node, number: int) -> Carried:
        return self.states[node.states[number].name]

    def encoder(self) -> Graph:
        """The once part: once inputs -> the values that cross."""
        inputs = tuple(v for v in self.region.inputs if v.name in self.graph.once) or (self.measure,)
        name = f"{self.region.name}{'Encoder' if self.graph.once else 'Initial'}"
        region = Region(name, inputs, tuple(self.early_items), tuple(self.crossing))
        return drop_dead(Graph(region))

    def decoder(self) -> Graph:
        """The late part: other inputs and held states -> the outputs."""
        inputs = [v for v in self.region.inputs if v.name not in self.graph.once]
        inputs += [v for v in self.held.values() if v is not None]
        outputs = outputs_of(self.region, self.held)
        name = f"{self.region.name}{'Decoder' if self.graph.once else ''}"
        region = Region(name, tuple(inputs), tuple(self.late_items), outputs)
        return drop_dead(Graph(region))
