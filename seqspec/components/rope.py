"""Rotary positions."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from seqspec.components.base import Finding, Findings, Positive
from seqspec.components.family import Family
from seqspec.components.positions import Position
from seqspec.ops import masks
from seqspec.ops.base import Op
from seqspec.ops.rope import Rope as Rotation
from seqspec.ops.rope import RopeTables

if TYPE_CHECKING:
    from seqspec.ops import rope_scaling as ops


class Scaling(Family):
    """How frequencies change for longer contexts."""

    kinds: ClassVar = {
        "linear": "rope_scaling:LinearScaling",
        "llama3": "rope_scaling:Llama3Scaling",
        "dynamic": "rope_scaling:DynamicScaling",
        "yarn": "rope_scaling:YarnScaling",
        "longrope": "rope_scaling:LongRopeScaling",
    }

    @property
    def switch(self) -> int | None:
        """The length beyond which frequencies depend on the length of the row, if there is one."""
        return None

    @abstractmethod
    def to_op(self) -> ops.Scaling:
        """The scaling as data for ops."""

    def check(self, width: int, theta: float) -> Findings:
        """Whether it fits `width` rotated channels."""
        yield from ()


class Rope(Position):
    """Rotary positions: rotates pairs of query and key channels by position · theta^(-2i/d) in every self-attention."""

    acts = True
    turns = True

    kind: Literal["rope"]
    theta: Positive = 10000.0
    """The base of the frequencies."""
    layout: Literal["half_split", "interleaved"] = "half_split"
    """Which channels form a pair: (i, i + d/2) as in LLaMA's Hugging Face weights, or (2i, 2i + 1) as in GPT-J."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The fraction of each head's channels that is rotated."""
    scaling: Scaling | None = None
    """How frequencies change for longer contexts."""

    @property
    def switch(self) -> int | None:
        return self.scaling.switch if self.scaling else None

    def width(self, head_dim: int) -> int:
        """How many channels of a head are rotated."""
        return int(head_dim * self.fraction)

    def check_attention(self, head_dim: int | None, allowed: masks.Mask) -> Findings:
        if head_dim is None:
            return
        turned = head_dim * self.fraction
        if turned != int(turned) or turned % 2:
            text = f"rope turns pairs, but head_dim ({head_dim}) times fraction ({self.fraction:g}) is {turned:g}"
            yield Finding("SEQ203", (), text, "make it an even number")
        if self.scaling:
            found = self.scaling.check(self.width(head_dim), self.theta)
            yield from (f.under("scaling") for f in found)
        if self.switch and masks.implies_causal(allowed, after_prefix=True):
            text = f"beyond {self.switch} tokens, running in steps differs from running at once"
            yield Finding("SEQ238", ("scaling",), text, "a past keeps the angles it was turned by")

    def tables(self, head_dim: int) -> Op:
        return RopeTables(self.width(head_dim), self.theta, self.scaling.to_op() if self.scaling else None)

    def rotation(self, head_dim: int) -> Op:
        return Rotation(self.layout, self.width(head_dim))
