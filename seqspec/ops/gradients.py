"""Which values take a gradient, and which values a backward pass reads again, region by region.

A model's inputs take none. Parameters do, and all floats that depend on them. Integers, masks and values that are only
read for their sizes never do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from seqspec.graph.ir import Call, Node, Param, Region, Value

Takes = tuple[bool, ...]


class Kept(NamedTuple):
    """What is kept of a region: `values` made in it, each with its item's number; indices of inputs and of outputs.

    Values that calls keep inside are not among them.
    """

    values: tuple[tuple[int, Value], ...]
    inputs: frozenset[int]
    outputs: frozenset[int]


class Gradients:
    """Gradients of regions, each computed once for the same inputs that take one."""

    def __init__(self) -> None:
        self._flows: dict[tuple[int, Takes], dict[str, bool]] = {}
        self._kept: dict[tuple[int, Takes], Kept] = {}

    def of(self, item: Node | Call, flow: dict[str, bool]) -> Takes:
        """Which inputs of an item take a gradient, given which values of its region do."""
        likes = item.op.likes if isinstance(item, Node) else ()
        return tuple(
            v is not None and n not in likes and (isinstance(v, Param) or flow[v.name])
            for n, v in enumerate(item.inputs)
        )

    def flow(self, region: Region, takes: Takes) -> dict[str, bool]:
        """Which values of a region take a gradient, given which of its inputs do."""
        key = (id(region), takes)
        if key not in self._flows:
            flow = dict(zip((v.name for v in region.inputs), takes, strict=True))
            for item in region.items:
                flow.update(zip((v.name for v in item.outputs), self._outputs(item, self.of(item, flow)), strict=True))
            self._flows[key] = flow
        return self._flows[key]

    def kept(self, region: Region, takes: Takes) -> Kept:
        """The values that the gradients of a region read again. A view counts as the value that it shows."""
        key = (id(region), takes)
        if key not in self._kept:
            self._kept[key] = self._find_kept(region, self.flow(region, takes))
        return self._kept[key]

    def all_kept(self, region: Region, takes: Takes) -> Iterator[Value]:
        """All values that are kept in a region and in its calls, without its inputs."""
        yield from (value for _, value in self.kept(region, takes).values)
        flow = self.flow(region, takes)
        for item in region.items:
            if isinstance(item, Call):
                yield from self.all_kept(item.region, self.of(item, flow))

    def _find_kept(self, region: Region, flow: dict[str, bool]) -> Kept:
        makers = {v.name: n for n, item in enumerate(region.items) for v in item.outputs}
        shown: dict[str, str] = {}
        read: dict[str, Value] = {}
        extra: list[tuple[int, Value]] = []
        inside: set[str] = set()
        values = {v.name: v for owner in (region, *region.items) for v in _visible(owner)}
        for number, item in enumerate(region.items):
            takes = self.of(item, flow)
            if isinstance(item, Call):
                kept = self.kept(item.region, takes)
                found: Iterable[Value | None] = [item.inputs[n] for n in kept.inputs]
                inside |= {item.outputs[n].name for n in kept.outputs}
            else:
                if item.op.view and (first := item.inputs[0]) is not None:
                    shown[item.outputs[0].name] = shown.get(first.name, first.name)
                trained = any(takes) or bool(item.op.params())
                found = item.op.keeps(takes, item.inputs, item.outputs) if trained else ()
            for value in found:
                if value is not None and not isinstance(value, Param):
                    name = shown.get(value.name, value.name)
                    read |= {name: values[name]} if name else {}
                    extra += [] if name else [(number, value)]
        own = [(makers[name], v) for name, v in read.items() if name in makers and name not in inside]
        outputs = [shown.get(v.name, v.name) for v in region.outputs]
        return Kept(
            (*own, *extra),
            frozenset(n for n, v in enumerate(region.inputs) if v.name in read),
            frozenset(n for n, name in enumerate(outputs) if name in read or name in inside),
        )

    def _outputs(self, item: Node | Call, takes: Takes) -> Sequence[bool]:
        if isinstance(item, Call):
            flow = self.flow(item.region, takes)
            return [isinstance(v, Param) or flow[v.name] for v in item.region.outputs]
        trained = any(takes) or bool(item.op.params())
        return [trained and v.dtype == "float" for v in item.outputs]


def _visible(owner: Region | Node | Call) -> tuple[Value, ...]:
    return owner.inputs if isinstance(owner, Region) else owner.outputs
