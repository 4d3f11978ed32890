"""The entries of a stack's `layers`, and the flat list of layers that they expand to."""

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
"""A stack's named blocks, for patterns to use."""


class Layer(NamedTuple):
    """One layer of the flat list: a block, or a bare layer."""

    path: Path
    inside: Path  # the path of its parts
    block: tuple[Sublayer, ...] = ()
    name: str = "block"
    bare: BareLayer | None = None

    @property
    def recurrent(self) -> Recurrent | None:
        """Its bare layer, if that is recurrent."""
        return self.bare.recurrent if self.bare else None

    @property
    def sublayers(self) -> list[Single]:
        """Its sublayers, with those inside a `parallel` listed one by one."""
        return [inner for sublayer in self.block for _, inner in sublayer.opened()]

    def parts(self) -> Iterator[tuple[Path, Part]]:
        """All its parts, with their paths."""
        if self.bare:
            yield self.inside, self.bare
        for n, sublayer in enumerate(self.block):
            yield from (((*self.inside, n, *path), inner) for path, inner in sublayer.opened())

    def weights(self, index: int) -> list[str]:
        """The names of its attention weights: its flat index, followed by the sublayer's name if there are several."""
        names = [s.called for s in self.sublayers if s.gives_weights]
        return [str(index)] if len(names) == 1 else [f"{index}.{name}" for name in names]


def named_block(name: str, blocks: Blocks) -> Layer:
    """The layer for one of the stack's `blocks`."""
    path = ("blocks", name)
    return Layer(path, path, tuple(blocks[name]), name)


class Entry(Family):
    """An entry of `layers`: one or more layers, repeated `repeat` times."""

    kinds: ClassVar = {
        "lstm": "lstm:LSTM",
        "gru": "gru:GRU",
        "rnn": "rnn:RNN",
        "conv": "conv:ConvLayer",
        "linear": "linear:LinearLayer",
    }
    keys: ClassVar = {"block": "blocks:Block", "pattern": "blocks:Pattern"}
    has_blocks: ClassVar[bool] = False
    """Whether its layers are blocks of sublayers."""

    if TYPE_CHECKING:
        repeat: int

    @property
    def count(self) -> int:
        """How many layers it expands to, not counting repeats."""
        return 1

    @property
    def named(self) -> Sequence[str]:
        """The names of the blocks that it uses."""
        return ()

    def check_named(self, blocks: Blocks) -> Findings:
        """Whether the blocks that it names exist."""
        yield from ()

    @abstractmethod
    def opened(self, path: Path, blocks: Blocks) -> Iterator[Layer]:
        """Its layers, without repeats; unknown blocks are left out."""

    @abstractmethod
    def resolved(self, said: Inheritance) -> Self:
        """Every default filled in."""


class Beside(NamedTuple):
    """What a bare layer gets besides x."""

    mask: Value | None
    memories: Mapping[str, Memory]  # other stacks
    place: Place
    given: Sequence[Value]  # inputs for its initial state, as its `given` asks; each may be None at run time
    stateful: bool
    finals: bool  # whether its final states are read


class Outputs(NamedTuple):
    """The results of a layer: y[B, T, O]; if they are read, the final h[B, L·D, O] (and c); the weights of `attend`."""

    y: Value
    finals: tuple[Value, ...] = ()
    weights: Value | None = None


class BareLayer(Part, Entry):
    """A layer without norm and residual, which may change the width."""

    width_key: ClassVar[str]
    """The field that sets its output width."""

    @property
    def recurrent(self) -> Recurrent | None:
        """Itself, if it has a state that others may read."""
        return None

    @property
    def layers(self) -> Layers:
        """Its states, as a bridge sees them."""
        return Layers(0, 1, ())

    @property
    def given(self) -> dict[str, tuple[int, int]]:
        """The shapes, without the batch, of the initial states that the caller may give: [L·D, H] each."""
        return {}

    def opened(self, path: Path, blocks: Blocks) -> Iterator[Layer]:
        yield Layer(path, path, bare=self)

    @abstractmethod
    def width(self, memory: int | None) -> int:
        """Output channels; `memory` is the width of the stack that it attends to."""

    def check(self) -> Findings:
        """What is wrong with it, once resolved."""
        yield from ()

    def check_reads(self, place: Place, sources: Mapping[str, Source]) -> Findings:
        """Whether what it reads of other stacks fits. Missing stacks are reported elsewhere."""
        yield from ()

    @abstractmethod
    def build(self, g: Builder, scope: str, x: Value, beside: Beside) -> Outputs:
        """A call of one region: x[B, T, I] -> y[B, T, O]."""
