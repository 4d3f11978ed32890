"""Masks: which positions may attend to which. Padding is not part of a mask; it follows from the input."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from seqspec.components.base import Findings
from seqspec.components.family import Family
from seqspec.ops import masks as ops

Distance = Annotated[int, Field(ge=0)]
TAKEN = frozenset({"input_ids", "attention_mask", "position_ids", "token_type_ids", "document_ids", "prefix_length"})
TAKEN |= {"features", "input_features", "pixel_values", "labels", "state"}
"""Names that a given mask cannot have, because other inputs have them."""


class Mask(Family):
    """Which positions may attend to which."""

    kinds: ClassVar = {
        "causal": "masks:Causal",
        "none": "masks:NoMask",
        "window": "sparse_masks:Window",
        "prefix": "given_masks:Prefix",
        "global": "sparse_masks:Global",
        "block_sparse": "sparse_masks:BlockSparse",
        "documents": "given_masks:Documents",
        "given": "given_masks:Given",
    }
    keys: ClassVar = {"all": "joined_masks:AllOf", "any": "joined_masks:AnyOf"}

    @abstractmethod
    def to_op(self) -> ops.Mask:
        """The mask as data for ops."""

    @cached_property  # read often, and a mask is never copied with changes
    def allowed(self) -> ops.Mask:
        """The mask as data for ops, in normal form."""
        return ops.normalise(self.to_op())

    def check(self) -> Findings:
        """What is wrong with it."""
        yield from ()


class Causal(Mask):
    """A position sees itself and what came before it."""

    kind: Literal["causal"]

    def to_op(self) -> ops.Mask:
        return ops.CAUSAL


class NoMask(Mask):
    """Every position sees every other."""

    kind: Literal["none"]

    def to_op(self) -> ops.Mask:
        return ops.EVERYTHING
