"""Position encodings. Positions count real tokens, so padding changes nothing."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from seqspec.components.base import Count, Finding, Findings, Positive, width_of
from seqspec.components.family import Family
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops import masks
from seqspec.ops.base import Op


class Position(Family):
    """How positions are encoded: added to the embedding, or acting in every self-attention."""

    kinds: ClassVar = {
        "none": "positions:NoPosition",
        "sinusoidal": "positions:Sinusoidal",
        "learned": "positions:Learned",
        "rope": "rope:Rope",
        "alibi": "biases:Alibi",
        "relative_bias": "biases:RelativeBias",
    }
    acts: ClassVar[bool] = False
    """Whether it acts in self-attention."""
    turns: ClassVar[bool] = False
    """Whether it rotates queries and keys."""

    def check_attention(self, head_dim: int | None, allowed: masks.Mask) -> Findings:
        """Whether it fits a self-attention with this mask."""
        yield from ()

    def check_count(self, count: int) -> Findings:
        """Whether it fits an input of a fixed number of vectors."""
        yield from ()

    def tables(self, head_dim: int) -> Op | None:
        """The op that makes its cosines and sines, if it rotates."""
        return None

    def rotation(self, head_dim: int) -> Op | None:
        """The op that rotates queries and keys, if it rotates."""
        return None

    def bias(self, heads: int, causal: bool) -> Op | None:
        """The op that makes its bias of scores, if it has one."""
        return None

    @property
    def switch(self) -> int | None:
        """The length beyond which running in steps differs from running at once, if there is one."""
        return None


class AddedPosition(Position):
    """A vector for each position, added once to the embedding."""

    @abstractmethod
    def build(self, b: Builder, positions: Value, x: Value) -> Value:
        """positions[B, T] -> what is added to x[B, T, D]"""

    def check_attention(self, head_dim: int | None, allowed: masks.Mask) -> Findings:
        text = f"`{self.kind}` positions are added once to the embedding and cannot be set on a layer"
        yield Finding("SEQ208", (), text, f"write `position: {self.kind}` on the stack")


class NoPosition(Position):
    """No position encoding; only the mask can reveal positions."""

    kind: Literal["none"]


class Sinusoidal(AddedPosition):
    """Sines and cosines of decreasing frequency, added once to the embedding. No parameters, any length."""

    kind: Literal["sinusoidal"]
    layout: Literal["interleaved", "half_split"] = "interleaved"
    """`interleaved`: sine and cosine side by side, the original; `half_split`: all sines first, Whisper's."""
    base: Positive = 10000.0
    """Frequencies fall from 1 to about 1/base."""

    def build(self, b: Builder, positions: Value, x: Value) -> Value:
        from seqspec.ops.positions import SinusoidalPositions

        return b.add(SinusoidalPositions(width_of(x), self.layout, self.base), positions, x)


class Learned(AddedPosition):
    """A table of `max_length` learned rows, added once to the embedding. A position past its end is an error."""

    kind: Literal["learned"]
    max_length: Count
    """The number of rows."""

    def check_count(self, count: int) -> Findings:
        if count != self.max_length:
            text = f"the image is {count} vectors, and max_length ({self.max_length}) must be as many"
            yield Finding("SEQ234", ("max_length",), text)

    def build(self, b: Builder, positions: Value, x: Value) -> Value:
        from seqspec.ops.positions import LearnedPositions

        return b.add(LearnedPositions(self.max_length, width_of(x)), positions, name="embed_positions")
