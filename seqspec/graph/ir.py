"""What a graph is made of: Value, Param, State, Node, Call, Region, Graph.

Everything in a region is named relative to it, so that equal blocks are one `Region`, stored once. A full name joins
the scopes of the calls that lead to a thing and its own name: `decoder.layers.3.attention.q_proj.weight`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeVar

from seqspec.graph.data import Data, primitive
from seqspec.graph.dims import Shape
from seqspec.graph.types import DType

if TYPE_CHECKING:
    from seqspec.ops.base import Op


@primitive
class Init(Data):
    """How a parameter is initialised, as data.

    One of `zeros`, `ones`, `constant(c)`, `uniform(bound)` on [-bound, bound], `normal(std)` around 0, or
    `blocks(init, …)`, which splits the first axis into equal parts with an initialisation each.
    """

    kind: Literal["zeros", "ones", "constant", "uniform", "normal", "blocks"]
    args: tuple[float | Init, ...] = ()


@primitive
class Value(Data):
    """A tensor in the graph. `hint` is its variable name in emitted source; without one it may be inlined."""

    beside = frozenset({"hint"})

    name: str
    shape: Shape
    dtype: DType = "float"
    hint: str = ""
    optional: bool = False  # may be None at run time, which then means "nothing special"

    def __hash__(self) -> int:  # values are looked up by the thousand, and within a region names hardly repeat
        return hash(self.name)


@primitive
class Param(Value):
    """A weight. As a node's input it is a tied weight: a path relative to the region that holds the node."""

    init: Init = Init("zeros")


@primitive
class State(Data):
    """What an op carries from one call of the model to the next.

    `shape` is that of the past; the present is the op's output number `output`. A `held` state is computed once, on
    the first call, and only read after. A past of None means that there is none (the op's own initial value counts).
    """

    name: str
    shape: Shape
    output: int
    dtype: DType = "float"
    held: bool = False
    cache: bool = False  # an attention's keys or values


@primitive
class Node(Data):
    """One op applied to values. `name` scopes its parameters and states; `origin` is the YAML path it comes from."""

    beside = frozenset({"origin"})

    op: Op
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    name: str = ""
    origin: str = ""

    @property
    def scope(self) -> str:
        """Its name, so that a node and a call can be asked alike."""
        return self.name

    @property
    def params(self) -> tuple[Param, ...]:
        """The op's parameters, named relative to the region."""
        return tuple(_within(self.name, p) for p in self.op.params())

    @property
    def states(self) -> tuple[State, ...]:
        """The op's states, named relative to the region."""
        return tuple(_within(self.name, s) for s in self.op.states(*self.inputs))


@primitive
class Call(Data):
    """An instance of a region, with parameters and states of its own under `scope`."""

    beside = frozenset({"origin"})

    region: Region
    scope: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    origin: str = ""

    @property
    def params(self) -> tuple[Param, ...]:
        """The region's parameters, named relative to the caller."""
        return tuple(_within(self.scope, p) for p in self.region.params)

    @property
    def states(self) -> tuple[State, ...]:
        """The region's states, named relative to the caller."""
        return tuple(_within(self.scope, s) for s in self.region.states)


@primitive
class Region(Data):
    """A block of nodes and calls; in emitted source, a class called `name`.

    Compared by identity, since the builder stores equal regions once.
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    name: str
    inputs: tuple[Value, ...]
    items: tuple[Node | Call, ...]
    outputs: tuple[Value, ...]

    @cached_property  # computed on demand: a check needs none of them, and a root has all weights of the model
    def params(self) -> tuple[Param, ...]:
        """Every parameter in it, each once."""
        return _unique(p for i in self.items for p in i.params)

    @cached_property
    def states(self) -> tuple[State, ...]:
        """Every state in it, in order."""
        return tuple(s for i in self.items for s in i.states)

    def children(self) -> Iterator[Region]:
        """The regions that this one calls or loops over, in order, with repeats."""
        for item in self.items:
            yield from (item.region,) if isinstance(item, Call) else item.op.bodies()


@primitive
class Graph(Data):
    """A whole model. Inputs named in `once` are read on the first call only (those of an encoder).

    `training` is a copy of the root with the optional input `labels` and the output `loss`, if the head has a loss. It
    calls the same regions and has the same parameters and states.
    """

    root: Region
    once: frozenset[str] = frozenset()
    training: Region | None = None

    @property
    def trainable(self) -> Graph:
        """The graph whose root takes labels, or this graph if there is none."""
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
    """Joins parts of a name with dots, without the empty ones."""
    return ".".join(p for p in parts if p)


def _within(scope: str, item: Named) -> Named:
    return item.but(name=f"{scope}.{item.name}") if scope else item


def _unique(params: Iterator[Param]) -> tuple[Param, ...]:
    return tuple({p.name: p for p in params}.values())
