"""The graph's nouns: Value, Param, State, Node, Call, Region, Graph.

Everything in a region is named relative to it, so that two equal blocks are one `Region`, stored once. A full name is
the scopes of the calls on the way and the own name: `decoder.layers.3.attention.q_proj.weight`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeVar

from seqspec.graph.data import Data, primitive
from seqspec.graph.dims import Shape
from seqspec.graph.types import DType

if TYPE_CHECKING:
    from seqspec.ops.base import Op


@primitive
class Init(Data):
    """How a parameter starts, as data: `zeros`, `ones`, `constant(c)`, `uniform(bound)`, `normal(std)`,
    or `blocks(init, …)`: equal parts along the first axis, each with its own."""

    kind: Literal["zeros", "ones", "constant", "uniform", "normal", "blocks"]
    args: tuple[float | Init, ...] = ()


@primitive
class Value(Data):
    """A tensor that flows. `hint` is the variable name a reader would choose; without one it may be inlined."""

    beside = frozenset({"hint"})

    name: str
    shape: Shape
    dtype: DType = "float"
    hint: str = ""
    optional: bool = False  # an input that may be None, and then means "nothing special"


@primitive
class Param(Value):
    """A weight. As a node's input it is a tie: a path relative to the region that holds the node."""

    init: Init = Init("zeros")


@primitive
class State(Data):
    """What an op carries from one call to the next, declared by the op that looks back.

    `shape` is the past's; the present is the op's output number `output`. `held` is computed once, on the first
    call, and then only read. Past absent means no past (or the op's own initial value), never a size of zero.
    """

    name: str
    shape: Shape
    output: int
    dtype: DType = "float"
    held: bool = False
    cache: bool = False  # an attention's keys or values


@primitive
class Node(Data):
    """One op applied. `name` scopes its parameters and state; `origin` is the YAML path it came from."""

    beside = frozenset({"origin"})

    op: Op
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    name: str = ""
    origin: str = ""

    @property
    def scope(self) -> str:
        return self.name

    @property
    def params(self) -> tuple[Param, ...]:
        return tuple(_within(self.name, p) for p in self.op.params())

    @property
    def states(self) -> tuple[State, ...]:
        return tuple(_within(self.name, s) for s in self.op.states(*self.inputs))


@primitive
class Call(Data):
    """A region instantiated: parameters and state are the call's own, under `scope`."""

    beside = frozenset({"origin"})

    region: Region
    scope: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    origin: str = ""

    @property
    def params(self) -> tuple[Param, ...]:
        return tuple(_within(self.scope, p) for p in self.region.params)

    @property
    def states(self) -> tuple[State, ...]:
        return tuple(_within(self.scope, s) for s in self.region.states)


@primitive
class Region(Data):
    """A block: `name` becomes the class. Compared by identity, since the builder stores equal ones once."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    name: str
    inputs: tuple[Value, ...]
    items: tuple[Node | Call, ...]
    outputs: tuple[Value, ...]

    @cached_property  # on demand: a check asks for none, and a root has as many as the model has weights
    def params(self) -> tuple[Param, ...]:
        return _unique(p for i in self.items for p in i.params)

    @cached_property
    def states(self) -> tuple[State, ...]:
        return tuple(s for i in self.items for s in i.states)

    def children(self) -> Iterator[Region]:
        """The regions this one calls or loops over, in order, repeats included."""
        for item in self.items:
            yield from (item.region,) if isinstance(item, Call) else item.op.bodies()


@primitive
class Graph(Data):
    """A whole model. Inputs named in `once` are read on the first call only (an encoder's).

    `training` is the root once more with the optional input `labels` and the output `loss`, where the head has one. It
    calls the same regions, and has the same parameters and states.
    """

    root: Region
    once: frozenset[str] = frozenset()
    training: Region | None = None

    @property
    def trainable(self) -> Graph:
        """The graph whose root takes labels, where there is one."""
        return Graph(self.training, self.once) if self.training else self

    def regions(self) -> tuple[Region, ...]:
        """Every distinct region, children before parents."""
        found: dict[int, Region] = {}

        def visit(region: Region) -> None:
            if id(region) not in found:
                for child in region.children():
                    visit(child)
                found[id(region)] = region

        visit(self.root)
        return tuple(found.values())


Named = TypeVar("Named", Param, State)


def join(*parts: str) -> str:
    """`a.b.c`, empty parts left out."""
    return ".".join(p for p in parts if p)


def _within(scope: str, item: Named) -> Named:
    return replace(item, name=join(scope, item.name))


def _unique(params: Iterator[Param]) -> tuple[Param, ...]:
    return tuple({p.name: p for p in params}.values())
