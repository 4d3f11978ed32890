"""Layers: the entries of a stack's `layers`, and the flat list that they stand for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from seqspec.components.base import Findings, Path
from seqspec.components.family import Family
from seqspec.components.inherited import Inheritance
from seqspec.components.parts import Part
from seqspec.components.states import Layers, Memory, Place, Source
from seqspec.components.sublayers import Single, Sublayer
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value

if TYPE_CHECKING:
    from seqspec.components.recurrent import Recurrent

Blocks = Mapping[str, Sequence[Sublayer]]
"""The blocks of a stack that patterns name."""


class Layer(NamedTuple):
    """One layer of the flat list: a block under its name, or a bare layer."""

    path: Path
    inside: Path  # where its parts stand
    block: tuple[Sublayer, ...] = ()
    name: str = "block"
    bare: BareLayer | None = None

    @property
    def recurrent(self) -> Recurrent | None:
        return self.bare.recurrent if self.bare else None

    @property
    def sublayers(self) -> list[Single]:
        """Its sublayers, those that run in parallel one by one."""
        return [inner for sublayer in self.block for _, inner in sublayer.opened()]

    def parts(self) -> Iterator[tuple[Path, Part]]:
        """All that it is made of, at their paths."""
        if self.bare:
            yield self.inside, self.bare
        for n, sublayer in enumerate(self.block):
            yield from (((*self.inside, n, *path), inner) for path, inner in sublayer.opened())

    def weights(self, index: int) -> list[str]:
        """What the attention weights that it puts out are called: its flat index, and names where there are several."""
        names = [s.called for s in self.sublayers if s.gives_weights]
        return [str(index)] if len(names) == 1 else [f"{index}.{name}" for name in names]


def named_block(name: str, blocks: Blocks) -> Layer:
    """The layer that one of the stack's `blocks` is."""
    path = ("blocks", name)
    return Layer(path, path, tuple(blocks[name]), name)


class Entry(Family):
    """An entry of `layers`: so many layers, all of that `repeat` times."""

    kinds: ClassVar = {
        "lstm": "lstm:LSTM",
        "gru": "gru:GRU",
        "rnn": "rnn:RNN",
        "conv": "conv:ConvLayer",
        "linear": "linear:LinearLayer",
    }
    keys: ClassVar = {"block": "blocks:Block", "pattern": "blocks:Pattern"}
    has_blocks: ClassVar[bool] = False
    """Whether it is made of sublayers."""

    if TYPE_CHECKING:
        repeat: int

    @property
    def count(self) -> int:
        """How many layers it stands for, repeats aside."""
        return 1

    @property
    def named(self) -> Sequence[str]:
        """The blocks that it names."""
        return ()

    def check_named(self, blocks: Blocks) -> Findings:
        """Whether there are those blocks."""
        yield from ()

    @abstractmethod
    def opened(self, path: Path, blocks: Blocks) -> Iterator[Layer]:
        """Its layers, once; those of unknown blocks left out."""

    @abstractmethod
    def resolved(self, said: Inheritance) -> Self:
        """Every default filled in."""


class Beside(NamedTuple):
    """What a bare layer is handed beside x."""

    mask: Value | None
    memories: Mapping[str, Memory]  # other stacks
    place: Place
    given: Sequence[Value]  # what the caller starts it from, as its `given` says, each of which may be None at run time
    stateful: bool
    finals: bool  # whether somebody reads its final states


class Outputs(NamedTuple):
    """What a built layer gives: y[B, T, O]; where they are wanted h[B, L·D, O] (and c); an `attend`'s weights."""

    y: Value
    finals: tuple[Value, ...] = ()
    weights: Value | None = None


class BareLayer(Part, Entry):
    """A layer without norm and residual, which may change the width."""

    width_key: ClassVar[str]
    """The field that says what it puts out."""

    @property
    def recurrent(self) -> Recurrent | None:
        """Itself, where it has a state that others may read."""
        return None

    @property
    def layers(self) -> Layers:
        """Its states as a bridge sees them."""
        return Layers(0, 1, ())

    @property
    def given(self) -> dict[str, tuple[int, int]]:
        """What the caller may give it to start from, [L·D, H] each."""
        return {}

    def opened(self, path: Path, blocks: Blocks) -> Iterator[Layer]:
        yield Layer(path, path, bare=self)

    @abstractmethod
    def width(self, memory: int | None) -> int:
        """Channels it puts out; `memory` are those of the stack that it attends to."""

    def check(self) -> Findings:
        """What is wrong with it, resolved."""
        yield from ()

    def check_reads(self, place: Place, sources: Mapping[str, Source]) -> Findings:
        """Whether what it reads of other stacks fits; of those that are not there something else is said."""
        yield from ()

    @abstractmethod
    def build(self, g: Builder, scope: str, x: Value, beside: Beside) -> Outputs:
        """A call of one region: x[B, T, I] -> y[B, T, O]."""
