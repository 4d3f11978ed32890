"""Scalings of rotary frequencies for texts longer than those of training."""

from __future__ import annotations

from math import log, sqrt
from typing import Annotated, Literal

from pydantic import Field

from seqspec.components.base import Count, Finding, Findings, Positive
from seqspec.components.rope import Scaling
from seqspec.ops import rope_scaling as ops

Factors = Annotated[list[Positive], Field(min_length=1)]


class LinearScaling(Scaling):
    """Divides every frequency by `factor`."""

    kind: Literal["linear"]
    factor: Positive
    """How many times longer the text may be than in training."""

    def to_op(self) -> ops.Scaling:
        return ops.Linear(self.factor)


class Llama3Scaling(Scaling):
    """Keeps high frequencies, divides low ones by `factor` and blends in between, as in LLaMA 3.1 and later."""

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

    def check(self, width: int, theta: float) -> Findings:
        if self.high_freq_factor <= self.low_freq_factor:
            low, high = self.low_freq_factor, self.high_freq_factor
            text = f"high_freq_factor ({high:g}) must be above low_freq_factor ({low:g})"
            yield Finding("SEQ106", ("high_freq_factor",), text)


class DynamicScaling(Scaling):
    """Increases theta with the length of the row beyond `original_max_length`: dynamic NTK.

    Cached keys keep the angles that they were rotated by, so beyond that length running in steps differs from running
    at once.
    """

    kind: Literal["dynamic"]
    factor: Positive
    """How fast it grows."""
    original_max_length: Count
    """The context length of training."""

    @property
    def switch(self) -> int:
        return self.original_max_length

    def to_op(self) -> ops.Scaling:
        return ops.Dynamic(self.original_max_length, self.factor)


class YarnScaling(Scaling):
    """Keeps high frequencies, divides low ones by `factor` and blends in between by the index of the pair: YaRN."""

    kind: Literal["yarn"]
    factor: Positive
    """What low frequencies are divided by."""
    original_max_length: Count
    """The context length of training."""
    beta_fast: Positive = 32.0
    """Pairs that make more turns than this in the original length are kept."""
    beta_slow: Positive = 1.0
    """Pairs that make fewer turns than this in the original length are divided."""
    attention_factor: Positive | None = None
    """Factor on cosines and sines; 0.1 ln(factor) + 1 by default, and 1 for a `factor` up to 1."""
    truncate: bool = True
    """Whether the bounds of the blend are rounded outwards to whole pairs."""

    def to_op(self) -> ops.Scaling:
        attention = self.attention_factor or (0.1 * log(self.factor) + 1 if self.factor > 1 else 1.0)
        length, fast, slow = self.original_max_length, self.beta_fast, self.beta_slow
        return ops.Yarn(self.factor, length, fast, slow, self.truncate, attention)

    def check(self, width: int, theta: float) -> Findings:
        if self.beta_fast <= self.beta_slow:
            text = f"beta_fast ({self.beta_fast:g}) must be above beta_slow ({self.beta_slow:g})"
            yield Finding("SEQ106", ("beta_fast",), text)
        if theta <= 1:
            yield Finding("SEQ106", (), f"yarn needs a theta above 1, not {theta:g}: other pairs do not differ")


class LongRopeScaling(Scaling):
    """Divides each pair's frequency by its own factor: the short one up to the original length, the long one beyond.

    Cached keys keep the angles that they were rotated by, so beyond that length running in steps differs from running
    at once.
    """

    kind: Literal["longrope"]
    short_factor: Factors
    """One factor per pair, for rows up to the original length."""
    long_factor: Factors
    """One factor per pair, for longer rows."""
    original_max_length: Count
    """The context length of training."""
    factor: Positive | None = None
    """How many times longer the text may be; cosines and sines are multiplied by √(1 + ln factor / ln original)."""
    attention_factor: Positive | None = None
    """Factor on cosines and sines, instead of `factor`; 1 without either."""

    @property
    def switch(self) -> int:
        return self.original_max_length

    def to_op(self) -> ops.Scaling:
        attention = self.attention_factor or 1.0
        if self.factor is not None and self.factor > 1:
            attention = sqrt(1 + log(self.factor) / log(self.original_max_length))
        return ops.LongRope(self.original_max_length, tuple(self.short_factor), tuple(self.long_factor), attention)

    def check(self, width: int, theta: float) -> Findings:
        for field in ("short_factor", "long_factor"):
            count = len(getattr(self, field))
            if count != width // 2:
                yield Finding("SEQ109", (field,), f"`{field}` has {count} numbers for {width // 2} pairs of channels")
        if self.factor is not None and self.attention_factor is not None:
            text = "`factor` and `attention_factor` exclude each other"
            yield Finding("SEQ110", ("factor",), text, "keep one of them")
        if self.factor is not None and self.original_max_length == 1:
            yield Finding("SEQ106", ("original_max_length",), "with a `factor`, original_max_length must be above 1")
