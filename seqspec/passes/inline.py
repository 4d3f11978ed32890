"""Inlines all calls into one flat region with full names, so that parameters and states have their public paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seqspec.graph.ir import Call, Graph, Node, Param, Region, Value, join
from seqspec.graph.signature import output_name
from seqspec.passes.bodies import with_bodies


def inline(graph: Graph) -> Graph:
    """The graph with every call replaced by its region's items, in loop bodies too, and without its training root."""
    return Graph(flat(graph.root), graph.once)


def flat(region: Region) -> Region:
    """`region` without calls; its outputs keep their public names."""
    inlining = _Inlining(region)
    outputs = inlining.expand(region, "", region.inputs)
    named = (replace(new, hint=output_name(old)) for old, new in zip(region.outputs, outputs, strict=True) if new)
    return Region(region.name, region.inputs, tuple(inlining.items), tuple(named))


class _Inlining:
    """The flat region while it is built: its items, the names taken, and the loop bodies already flat."""

    def __init__(self, region: Region) -> None:
        self.items: list[Node] = []
        self.taken = {v.name for v in region.inputs}
        self.bodies: dict[int, Region] = {}

    def expand(self, region: Region, scope: str, arguments: Sequence[Value | None]) -> tuple[Value | None, ...]:
        """Appends what a call of `region` does, and returns its outputs."""
        known: dict[str, Value | None] = dict(zip((v.name for v in region.inputs), arguments, strict=True))

        def read(value: Value | None) -> Value | None:
            if isinstance(value, Param):
                return replace(value, name=join(scope, value.name))
            return None if value is None else known[value.name]

        for item in region.items:
            inputs = tuple(map(read, item.inputs))
            if isinstance(item, Call):
                outputs = self.expand(item.region, join(scope, item.scope), inputs)
            else:
                outputs = tuple(replace(v, name=self._free(join(scope, v.name))) for v in item.outputs)
                op = with_bodies(item.op, self._flat_body)
                self.items.append(Node(op, inputs, tuple(v for v in outputs if v), join(scope, item.name), item.origin))
            known.update(zip((v.name for v in item.outputs), outputs, strict=True))
        return tuple(map(read, region.outputs))

    def _free(self, name: str) -> str:
        """`name`, numbered if taken: calls that share parameters share a scope."""
        free, count = name, 1
        while free in self.taken:
            count += 1
            free = f"{name}.{count}"
        self.taken.add(free)
        return free

    def _flat_body(self, body: Region) -> Region:
        if id(body) not in self.bodies:
            self.bodies[id(body)] = flat(body)
        return self.bodies[id(body)]
