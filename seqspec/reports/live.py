"""The working memory of a forward pass: the values alive at once, each until it is last read."""

from __future__ import annotations

from seqspec.graph.ir import Call, Node, Param, Region, Value
from seqspec.reports.count import Count


class Live:
    """Peaks of regions, each computed once. Temporary values inside an op are not counted."""

    def __init__(self, count: Count) -> None:
        self.count = count
        self._peaks: dict[int, int] = {}

    def peak(self, item: Region | Node | Call) -> int:
        """The most bytes alive at once inside an item, including its outputs but not its inputs."""
        if isinstance(item, Node):
            return 0 if item.op.view else sum(map(self.count.bytes, item.outputs))
        region = item.region if isinstance(item, Call) else item
        if id(region) not in self._peaks:
            self._peaks[id(region)] = self._find(region)
        return self._peaks[id(region)]

    def _find(self, region: Region) -> int:
        last = _last_reads(region)
        alive = most = 0
        sizes: dict[str, int] = {}
        for number, item in enumerate(region.items):
            most = max(most, alive + self.peak(item))
            for value in () if isinstance(item, Node) and item.op.view else item.outputs:
                sizes[value.name] = self.count.bytes(value)
                alive += sizes[value.name]
            ended = [name for name in sizes if last.get(name, number) <= number]
            alive -= sum(map(sizes.pop, ended))
        return most


def _last_reads(region: Region) -> dict[str, int]:
    """The number of the item that reads each value last, directly or as a view; outputs are read after all items."""
    shown: dict[str, str] = {}
    last: dict[str, int] = {}

    def read(values: tuple[Value | None, ...], number: int) -> None:
        for value in values:
            if value is not None and not isinstance(value, Param):
                last[shown.get(value.name, value.name)] = number

    for number, item in enumerate(region.items):
        read(item.inputs, number)
        if isinstance(item, Node) and item.op.view and (first := item.inputs[0]) is not None:
            shown[item.outputs[0].name] = shown.get(first.name, first.name)
    read(region.outputs, len(region.items))
    return last
