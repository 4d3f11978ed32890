"""Positions: how a stack tells where a token stands. They count real tokens, so left padding changes nothing."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from seqspec.components.base import Component, Count, Finding, Findings, Positive, Shorthand, width_of
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops import rope as ops
from seqspec.ops.base import Op
from seqspec.ops.positions import LearnedPositions, SinusoidalPositions


class NoPosition(Component):
    """Nothing says where a token stands, but for the mask."""

    kind: Literal["none"]


class Sinusoidal(Component):
    """Sines and cosines of falling frequency, added once to the embedding. No parameters, any length."""

    kind: Literal["sinusoidal"]
    layout: Literal["interleaved", "half_split"] = "interleaved"
    """`interleaved`: sine and cosine side by side, the original; `half_split`: all sines first, Whisper's."""
    base: Positive = 10000.0
    """Frequencies fall from 1 to about 1/base."""

    def build(self, b: Builder, positions: Value, x: Value) -> Value:
        return b.add(SinusoidalPositions(width_of(x), self.layout, self.base), positions, x)


class Learned(Component):
    """A table of `max_length` learned rows, added once to the embedding. A position past its end is an error."""

    kind: Literal["learned"]
    max_length: Count
    """How many positions there are."""

    def build(self, b: Builder, positions: Value, x: Value) -> Value:
        return b.add(LearnedPositions(self.max_length, width_of(x)), positions, name="embed_positions")


class LinearScaling(Component):
    """Divides every frequency by `factor`."""

    kind: Literal["linear"]
    factor: Positive
    """How many times longer the text may be than in training."""

    def to_op(self) -> ops.Scaling:
        return ops.Linear(self.factor)


class Llama3Scaling(Component):
    """Keeps high frequencies, divides low ones by `factor`, blends between: LLaMA 3.1 and later."""

    kind: Literal["llama3"]
    factor: Positive
    """What low frequencies are divided by."""
    low_freq_factor: Positive
    """Wavelengths above original_max_length / low_freq_factor are divided."""
    high_freq_factor: Positive
    """Wavelengths below original_max_length / high_freq_factor are kept."""
    original_max_length: Count
    """The context length of training."""

    def to_op(self) -> ops.Scaling:
        return ops.Llama3(self.factor, self.low_freq_factor, self.high_freq_factor, self.original_max_length)


Scaling = Annotated[LinearScaling | Llama3Scaling, Field(discriminator="kind"), Shorthand]


class Rope(Component):
    """Rotary positions: turns pairs of query and key channels by position · theta^(-2i/d), in every self-attention."""

    kind: Literal["rope"]
    theta: Positive = 10000.0
    """The base of the frequencies."""
    layout: Literal["half_split", "interleaved"] = "half_split"
    """Which channels are a pair: (i, i + d/2) as in LLaMA's Hugging Face weights, or (2i, 2i + 1) as in GPT-J."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The part of each head's channels that is turned."""
    scaling: Scaling | None = None
    """How frequencies change for longer contexts."""

    def width(self, head_dim: int) -> int:
        """The channels of a head that are turned."""
        return int(head_dim * self.fraction)

    def check(self, head_dim: int) -> Findings:
        turned = head_dim * self.fraction
        if turned != int(turned) or turned % 2:
            text = f"rope turns pairs, but head_dim ({head_dim}) times fraction ({self.fraction:g}) is {turned:g}"
            yield Finding("SEQ203", (), text, "make it an even number")
        scaling = self.scaling
        if isinstance(scaling, Llama3Scaling) and scaling.high_freq_factor <= scaling.low_freq_factor:
            low, high = scaling.low_freq_factor, scaling.high_freq_factor
            text = f"high_freq_factor ({high:g}) must be above low_freq_factor ({low:g})"
            yield Finding("SEQ106", ("scaling", "high_freq_factor"), text)

    def tables(self, head_dim: int) -> Op:
        return ops.RopeTables(self.width(head_dim), self.theta, self.scaling.to_op() if self.scaling else None)

    def rotation(self, head_dim: int) -> Op:
        return ops.Rope(self.layout, self.width(head_dim))


Position = Annotated[NoPosition | Sinusoidal | Learned | Rope, Field(discriminator="kind"), Shorthand]
