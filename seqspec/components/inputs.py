"""Inputs: what a stack reads, and what makes vectors of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from seqspec.components.base import Findings, Inlet
from seqspec.components.family import Family
from seqspec.components.norms import Norm
from seqspec.graph.builder import Builder
from seqspec.graph.dims import Shape
from seqspec.graph.ir import Value
from seqspec.graph.types import DType

if TYPE_CHECKING:
    from seqspec.components.tokens import Tokens

Declare = Callable[..., Value]
"""(name, shape, optional=True) -> a public input of the stack, int64."""


class Tables(NamedTuple):
    """Token tables that another stack owns, handed in as arguments."""

    tokens: Value
    types: Value | None


class Owner(NamedTuple):
    """The stack whose tables an input shares: its own input and width."""

    input: Tokens
    d_model: int | None


class Around(NamedTuple):
    """What is around an input when its vectors are made."""

    mask: Value | None
    width: int  # the stack's
    declare: Declare
    inlet: Inlet
    owner: Tokens | None  # whose tables are read, where another stack has them
    tables: Tables | None


class Input(Family):
    """What a stack reads: a public input, which becomes a vector for every position."""

    kinds: ClassVar = {
        "tokens": "tokens:Tokens",
        "features": "features:Features",
        "audio": "audio:Audio",
        "image": "image:Image",
    }
    port: ClassVar[str]
    """The name of the public input."""
    dtype: ClassVar[DType]
    at_once: ClassVar[bool] = False
    """Whether it is read at once, the future included."""

    if TYPE_CHECKING:
        norm: Norm | None

    @property
    def padding_id(self) -> int | None:
        """The id that is padding wherever no mask is given."""
        return None

    @property
    def count(self) -> int | None:
        """How many vectors it is, where that is always the same."""
        return None

    def stack_width(self, owner: Tokens | None) -> int | None:
        """The residual width of a stack that does not say its own."""
        return None

    def entering(self, d_model: int | None) -> int | None:
        """Channels that enter the first layer of a stack of that width."""
        return d_model

    def resolved(self, d_model: int | None, owner: Tokens | None) -> Self:
        """Every default filled in; `owner` is the resolved input whose tables are shared."""
        return self

    def check(self, d_model: int | None, owner: Owner | None) -> Findings:
        """What is wrong with it in a stack of that width."""
        yield from ()

    @abstractmethod
    def shape(self, batch_time: Shape) -> Shape:
        """The public input's, for a batch and a time."""

    def signal(
        self, b: Builder, data: Value, width: int, padding: Callable[[Value], Value]
    ) -> tuple[Value, Value | None]:
        """What time is counted on, and its mask: the input itself, or the vectors that it becomes.

        `padding` makes the mask of [B, T] or [B, T, I], from the mask that is given.
        """
        return data, padding(data)

    @abstractmethod
    def vectors(self, b: Builder, data: Value, around: Around) -> Value:
        """What `signal` gave -> [B, T, D]. Positions and the norm come behind."""
