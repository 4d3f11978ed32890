"""What the values of a region depend on: an input that is new in every call, and weights that take a gradient."""

from __future__ import annotations

from typing import NamedTuple

from seqspec.graph.ir import Call, Graph, Node, Param, Region
from seqspec.ops.gradients import Gradients, Takes


class Reach(NamedTuple):
    """Of the inputs of a region or an item: which are late, new in every call; and which take a gradient."""

    late: tuple[bool, ...]
    takes: Takes

    @classmethod
    def of(cls, graph: Graph, root: Region) -> Reach:
        """Of the inputs of a whole graph: of those none takes a gradient."""
        return cls(tuple(v.name not in graph.once for v in root.inputs), (False,) * len(root.inputs))


class Flow(NamedTuple):
    """The same of every value of a region, by name."""

    late: dict[str, bool]
    takes: dict[str, bool]


class Flows:
    """Answers for regions, each once for what reaches it."""

    def __init__(self) -> None:
        self.gradients = Gradients()
        self._late: dict[tuple[int, tuple[bool, ...]], dict[str, bool]] = {}

    def inside(self, region: Region, reach: Reach) -> Flow:
        """What reaches the values of a region."""
        return Flow(self._late_in(region, reach.late), self.gradients.flow(region, reach.takes))

    def of(self, item: Node | Call, flow: Flow) -> Reach:
        """What reaches the inputs of an item."""
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
