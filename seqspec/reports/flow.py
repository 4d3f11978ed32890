"""Which values of a region depend on inputs that are new in every call, and which take a gradient."""

from __future__ import annotations

from typing import NamedTuple

from seqspec.graph.ir import Call, Graph, Node, Param, Region
from seqspec.ops.gradients import Gradients, Takes


class Reach(NamedTuple):
    """Which inputs of a region or an item are late, that is new in every call, and which take a gradient."""

    late: tuple[bool, ...]
    takes: Takes

    @classmethod
    def of(cls, graph: Graph, root: Region) -> Reach:
        """For the inputs of a whole graph, none of which takes a gradient."""
        return cls(tuple(v.name not in graph.once for v in root.inputs), (False,) * len(root.inputs))


class Flow(NamedTuple):
    """The same for every value of a region, by name."""

    late: dict[str, bool]
    takes: dict[str, bool]


class Flows:
    """Flows of regions, each computed once for the same reach of its inputs."""

    def __init__(self) -> None:
        self.gradients = Gradients()
        self._late: dict[tuple[int, tuple[bool, ...]], dict[str, bool]] = {}

    def inside(self, region: Region, reach: Reach) -> Flow:
        """The flow of a region's values, given the reach of its inputs."""
        return Flow(self._late_in(region, reach.late), self.gradients.flow(region, reach.takes))

    def of(self, item: Node | Call, flow: Flow) -> Reach:
        """The reach of an item's inputs, given the flow of its region."""
        return Reach(_late(item, flow.late), self.gradients.of(item, flow.takes))

    def _late_in(self, region: Region, late: tuple[bool, ...]) -> dict[str, bool]:
        key = (id(region), late)
        if key not in self._late:
            flow = dict(zip((v.name for v in region.inputs), late, strict=True))
            for item in region.items:
                inputs = _late(item, flow)
                if isinstance(item, Call):
                    inner = self._late_in(item.region, inputs)
                    found = [not isinstance(v, Param) and inner[v.name] for v in item.region.outputs]
                else:
                    found = [any(inputs)] * len(item.outputs)
                flow.update(zip((v.name for v in item.outputs), found, strict=True))
            self._late[key] = flow
        return self._late[key]


def _late(item: Node | Call, flow: dict[str, bool]) -> tuple[bool, ...]:
    return tuple(v is not None and not isinstance(v, Param) and flow[v.name] for v in item.inputs)
