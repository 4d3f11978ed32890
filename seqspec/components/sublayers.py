"""Sublayers, of which blocks consist."""

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
"""The result of a sublayer: y[B, T, D], followed by its attention weights if they are an output."""
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
        """The sublayers inside it with their paths, or itself."""

    @abstractmethod
    def resolved(self, said: Inheritance) -> Self:
        """Every default filled in."""

    def check(self, width: int) -> Findings:
        """What is wrong with it, once resolved, in a stack of this width."""
        yield from ()

    @abstractmethod
    def build(self, g: Builder, x: Value, context: Context) -> Made:
        """Builds its region and calls it."""


class Single(Sublayer):
    """A sublayer that may be part of a `parallel`."""

    kinds: ClassVar = _SINGLE
    reads_positions: ClassVar[bool] = False
    """Whether its region takes the positions of tokens."""
    masked: ClassVar[bool] = False
    """Whether the stack's mask applies to it."""

    def opened(self) -> Iterator[tuple[Path, Single]]:
        yield (), self

    @property
    def gives_weights(self) -> bool:
        """Whether its attention weights are an output of the model."""
        return False

    # ---- keys of what self-attentions share; None for what a sublayer does not need --------------------------------

    @property
    def allowed(self) -> masks.Mask:
        """The mask as data for the op."""
        return masks.EVERYTHING

    def takes(self, position: Position) -> bool:
        """Whether it uses this kind of position."""
        return False

    @property
    def tables_key(self) -> Op | None:
        """The op that makes its rotary tables."""
        return None

    @property
    def mask_key(self) -> masks.Mask | None:
        """Its mask, if that is more than a band."""
        return None

    @property
    def bias_key(self) -> Op | None:
        """The op that makes the bias of its scores."""
        return None


def made_of(made: Made) -> tuple[Value, ...]:
    """The result of a sublayer as a tuple."""
    return made if isinstance(made, tuple) else (made,)
