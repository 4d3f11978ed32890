"""Sums the costs of a graph's ops. A region is summed once, however often it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from math import prod
from typing import NamedTuple

from seqspec.graph.dims import Shape, Size, evaluate
from seqspec.graph.ir import Call, Node, Region, State, Value
from seqspec.ops.gradients import Takes
from seqspec.reports.flow import Flows, Reach

BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "bool": 1}
DTYPES = tuple(name for name in BYTES if "float" in name)
"""The element types that a report can assume."""


class Cost(NamedTuple):
    """FLOPs of one call, and of its gradients.

    `once` are those that depend only on the encoder's inputs, and run on the first call only.
    """

    once: int = 0
    every: int = 0
    backward: int = 0

    @property
    def total(self) -> int:
        return self.once + self.every

    def plus(self, other: Cost) -> Cost:
        return Cost(*map(sum, zip(self, other, strict=True)))


class Count:
    """Counts over regions, at given sizes and for a given element type of the model."""

    def __init__(self, sizes: Mapping[str, int], dtype: str) -> None:
        # the present of a state is as long as the past of the next call
        self.sizes, self.dtype = sizes, dtype
        self.after = {**sizes, "past_sequence_length": sizes["past_sequence_length"] + sizes["sequence_length"]}
        self.flows = Flows()
        self._params: dict[int, tuple[int, int]] = {}
        self._states: dict[int, tuple[int, int]] = {}
        self._costs: dict[tuple[int, Reach], Cost] = {}
        self._kept: dict[tuple[int, Takes], int] = {}

    def params(self, item: Region | Node | Call) -> tuple[int, int]:
        """The number of weights, and their bytes. Tied weights count once, where they are owned."""
        if isinstance(item, Node):
            return _sum((prod(map(_number, p.shape)), self.bytes(p)) for p in item.op.params())
        region = item.region if isinstance(item, Call) else item
        if id(region) not in self._params:
            # calls with the same scope share their weights; items without a scope have their own
            owned = {inner.scope or n: inner for n, inner in enumerate(region.items)}
            self._params[id(region)] = _sum(map(self.params, owned.values()))
        return self._params[id(region)]

    def states(self, item: Region | Node | Call) -> tuple[int, int]:
        """Bytes carried to the next call, and how many of them are held since the first one."""
        if isinstance(item, Node):
            return _sum((self.state(s), self.state(s) * s.held) for s in item.op.states(*item.inputs))
        region = item.region if isinstance(item, Call) else item
        if id(region) not in self._states:
            self._states[id(region)] = _sum(map(self.states, region.items))
        return self._states[id(region)]

    def cost(self, item: Region | Node | Call, reach: Reach) -> Cost:
        """FLOPs of an item, given the reach of its inputs."""
        if isinstance(item, Node):
            forward = self.forward(item)
            backward = _number(item.op.backward(reach.takes, *map(self._known, item.inputs))) if forward else 0
            return Cost(0, forward, backward) if any(reach.late) else Cost(forward, 0, backward)
        region = item.region if isinstance(item, Call) else item
        key = (id(region), reach)
        if key not in self._costs:
            flow = self.flows.inside(region, reach)
            costs = (self.cost(inner, self.flows.of(inner, flow)) for inner in region.items)
            self._costs[key] = reduce(Cost.plus, costs, Cost())
        return self._costs[key]

    def forward(self, node: Node) -> int:
        """FLOPs of an op."""
        return _number(node.op.flops(*map(self._known, node.inputs)))

    def kept(self, region: Region, takes: Takes) -> int:
        """Bytes that the gradients of a region read again, without its inputs."""
        key = (id(region), takes)
        if key not in self._kept:
            gradients = self.flows.gradients
            flow = gradients.flow(region, takes)
            own = sum(self.bytes(value) for _, value in gradients.kept(region, takes).values)
            calls = (item for item in region.items if isinstance(item, Call))
            self._kept[key] = own + sum(self.kept(call.region, gradients.of(call, flow)) for call in calls)
        return self._kept[key]

    def bytes(self, value: Value) -> int:
        """Bytes of a value or a weight."""
        return _volume(value.shape, self.sizes) * self._width(value.dtype)

    def size(self, size: Size) -> int:
        """The value of a size."""
        return evaluate(size, self.sizes)

    def _known(self, value: Value | None) -> Value | None:
        return value and replace(value, shape=tuple(evaluate(size, self.sizes) for size in value.shape))

    def state(self, state: State) -> int:
        """Bytes of a state after the call."""
        return _volume(state.shape, self.after) * self._width(state.dtype)

    def _width(self, dtype: str) -> int:
        return BYTES[self.dtype if dtype == "float" else dtype]


def _volume(shape: Shape, sizes: Mapping[str, int]) -> int:
    return prod(evaluate(size, sizes) for size in shape)


def _number(size: object) -> int:
    assert isinstance(size, int)
    return size


def _sum(pairs: Iterator[tuple[int, int]] | map[tuple[int, int]]) -> tuple[int, int]:
    first = second = 0
    for a, b in pairs:
        first, second = first + a, second + b
    return first, second
