"""Inputs: what a stack reads, and how it becomes vectors."""

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
"""(name, shape, optional=True) -> a new int64 input of the model."""


class Tables(NamedTuple):
    """Token tables that another stack owns."""

    tokens: Value
    types: Value | None


class Owner(NamedTuple):
    """The stack whose tables an input shares: its own input and width."""

    input: Tokens
    d_model: int | None


class Around(NamedTuple):
    """What an input can use when its vectors are built."""

    mask: Value | None
    width: int  # the stack's
    declare: Declare
    inlet: Inlet
    owner: Tokens | None  # the input of another stack whose tables are shared
    tables: Tables | None


class Input(Family):
    """What a stack reads: an input of the model, which becomes a vector for every position."""

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
    """Whether it is read as a whole, so that no stack over it is causal."""

    if TYPE_CHECKING:
        norm: Norm | None

    @property
    def padding_id(self) -> int | None:
        """The id that counts as padding if no mask is given."""
        return None

    @property
    def count(self) -> int | None:
        """The number of vectors, if it is fixed."""
        return None

    def stack_width(self, owner: Tokens | None) -> int | None:
        """The width of a stack that does not set its own."""
        return None

    def entering(self, d_model: int | None) -> int | None:
        """Channels that enter the first layer, in a stack of width `d_model`."""
        return d_model

    def resolved(self, d_model: int | None, owner: Tokens | None) -> Self:
        """Every default filled in; `owner` is the resolved input whose tables are shared."""
        return self

    def check(self, d_model: int | None, owner: Owner | None) -> Findings:
        """What is wrong with it, in a stack of width `d_model`."""
        yield from ()

    @abstractmethod
    def shape(self, batch_time: Shape) -> Shape:
        """The shape of the model's input, for a batch size and a length."""

    def signal(
        self, b: Builder, data: Value, width: int, padding: Callable[[Value], Value]
    ) -> tuple[Value, Value | None]:
        """The sequence whose axis 1 the layers see as time, and its mask: the input itself, or vectors made of it.

        `padding` makes the mask of [B, T] or [B, T, I], from the mask that the caller gives.
        """
        return data, padding(data)

    @abstractmethod
    def vectors(self, b: Builder, data: Value, around: Around) -> Value:
        """The first result of `signal` -> [B, T, D]. Positions and the norm are added after this."""
