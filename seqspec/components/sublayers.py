"""Sublayers: what blocks are made of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Self

from seqspec.components.base import Context, Findings, Path, Residual
from seqspec.components.inherited import Inheritance
from seqspec.components.parts import Part
from seqspec.components.positions import Position
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops import masks
from seqspec.ops.base import Op

Made = Value | tuple[Value, ...]
"""What a sublayer gives: y[B, T, D], and attention weights behind it where they are wanted."""
_SINGLE = {
    "attention": "attention:SelfAttention",
    "cross_attention": "cross_attention:CrossAttention",
    "linear_attention": "efficient:LinearAttention",
    "low_rank_attention": "efficient:LowRankAttention",
    "ffn": "feedforward:FeedForward",
}


class Sublayer(Part):
    """x[B, T, D] -> [B, T, D], with a norm and a residual around it."""

    kinds: ClassVar = {**_SINGLE, "parallel": "parallel:Parallel"}

    if TYPE_CHECKING:
        residual: Residual

    @abstractmethod
    def opened(self) -> Iterator[tuple[Path, Single]]:
        """The sublayers it is made of, at their paths; itself."""

    @abstractmethod
    def resolved(self, said: Inheritance) -> Self:
        """Every default filled in."""

    def check(self, width: int) -> Findings:
        """What is wrong with it, resolved, in a stack of that width."""
        yield from ()

    @abstractmethod
    def build(self, g: Builder, x: Value, context: Context) -> Made:
        """A call of one region."""


class Single(Sublayer):
    """A sublayer that may stand in a `parallel`."""

    kinds: ClassVar = _SINGLE
    reads_positions: ClassVar[bool] = False
    """Whether its region is handed the positions of tokens."""
    masked: ClassVar[bool] = False
    """Whether it stands under the stack's mask."""

    def opened(self) -> Iterator[tuple[Path, Single]]:
        yield (), self

    @property
    def gives_weights(self) -> bool:
        """Whether it puts out attention weights too."""
        return False

    # ---- what self-attentions share: a key of each thing, None for what they do not ask for ------------------------

    @property
    def allowed(self) -> masks.Mask:
        """The mask as the op takes it."""
        return masks.EVERYTHING

    def takes(self, position: Position) -> bool:
        """Whether it tells positions in this way."""
        return False

    @property
    def tables_key(self) -> Op | None:
        """The op that makes its rotary tables."""
        return None

    @property
    def mask_key(self) -> masks.Mask | None:
        """A mask that is more than a band."""
        return None

    @property
    def bias_key(self) -> Op | None:
        """The op that makes what is added to its scores."""
        return None


def made_of(made: Made) -> tuple[Value, ...]:
    """What a sublayer gives, and any attention weights behind it."""
    return made if isinstance(made, tuple) else (made,)
