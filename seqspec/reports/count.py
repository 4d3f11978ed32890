"""Sums over a graph of what its ops say. A region is summed once, however often it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple

from seqspec.graph.dims import Shape, evaluate
from seqspec.graph.ir import Call, Node, Param, Region, State, Value

BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "bool": 1}
DTYPES = tuple(name for name in BYTES if "float" in name)
"""What a model can compute in, as far as a report goes."""


class Cost(NamedTuple):
    """FLOPs of one call. `once` is what depends on the encoder's inputs alone, and runs on the first call only."""

    once: int = 0
    every: int = 0

    @property
    def total(self) -> int:
        return self.once + self.every

    def plus(self, other: Cost) -> Cost:
        return Cost(self.once + other.once, self.every + other.every)


class Count:
    """Counts over regions, at given sizes and for a given element type of the model."""

    def __init__(self, sizes: Mapping[str, int], dtype: str) -> None:
        # the present of a state is as long as the past of the call behind it
        self.sizes, self.dtype = sizes, dtype
        self.after = {**sizes, "past_sequence_length": sizes["past_sequence_length"] + sizes["sequence_length"]}
        self._params: dict[int, tuple[int, int]] = {}
        self._states: dict[int, tuple[int, int]] = {}
        self._flops: dict[tuple[int, tuple[bool, ...]], tuple[Cost, tuple[bool, ...]]] = {}

    def params(self, item: Region | Node | Call) -> tuple[int, int]:
        """How many weights, and their bytes. What is tied counts where it is owned."""
        if isinstance(item, Node):
            return _sum((prod(map(_number, p.shape)), self._bytes(p)) for p in item.op.params())
        region = item.region if isinstance(item, Call) else item
        if id(region) not in self._params:
            # two calls of one scope share their weights; what has no scope has its own
            owned = {inner.scope or n: inner for n, inner in enumerate(region.items)}
            self._params[id(region)] = _sum(map(self.params, owned.values()))
        return self._params[id(region)]

    def states(self, item: Region | Node | Call) -> tuple[int, int]:
        """Bytes carried to the next call, and those of them that are held from the first one."""
        if isinstance(item, Node):
            return _sum(map(self._state, item.op.states(*item.inputs)))
        region = item.region if isinstance(item, Call) else item
        if id(region) not in self._states:
            self._states[id(region)] = _sum(map(self.states, region.items))
        return self._states[id(region)]

    def flops(self, region: Region, late: tuple[bool, ...]) -> tuple[Cost, tuple[bool, ...]]:
        """The cost, and which outputs are late: those that depend on an input that is new in every call."""
        key = (id(region), late)
        if key not in self._flops:
            env = dict(zip(region.inputs, late, strict=True))
            cost = Cost()
            for item in region.items:
                cost = cost.plus(self.flops_of(item, env))
            self._flops[key] = (cost, tuple(_is_late(v, env) for v in region.outputs))
        return self._flops[key]

    def flops_of(self, item: Node | Call, env: dict[Value, bool]) -> Cost:
        """The cost of one item, whose outputs join `env`."""
        if isinstance(item, Call):
            cost, outputs = self.flops(item.region, tuple(_is_late(v, env) for v in item.inputs))
            env.update(zip(item.outputs, outputs, strict=True))
            return cost
        late = any(_is_late(v, env) for v in item.inputs)
        env.update(dict.fromkeys(item.outputs, late))
        number = int(_number(item.op.flops(*(v and self._known(v) for v in item.inputs))))
        return Cost(every=number) if late else Cost(once=number)

    def _known(self, value: Value) -> Value:
        return replace(value, shape=tuple(evaluate(size, self.sizes) for size in value.shape))

    def _state(self, state: State) -> tuple[int, int]:
        number = _volume(state.shape, self.after) * self._width(state.dtype)
        return number, number if state.held else 0

    def _bytes(self, param: Param) -> int:
        return _volume(param.shape, self.sizes) * self._width(param.dtype)

    def _width(self, dtype: str) -> int:
        return BYTES[self.dtype if dtype == "float" else dtype]


def _volume(shape: Shape, sizes: Mapping[str, int]) -> int:
    return prod(evaluate(size, sizes) for size in shape)


def _is_late(value: Value | None, env: Mapping[Value, bool]) -> bool:
    return value is not None and not isinstance(value, Param) and env[value]


def _number(size: object) -> int:
    assert isinstance(size, int)
    return size


def _sum(pairs: Iterator[tuple[int, int]] | map[tuple[int, int]]) -> tuple[int, int]:
    first = second = 0
    for a, b in pairs:
        first, second = first + a, second + b
    return first, second
