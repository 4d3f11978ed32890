"""Combinations of masks."""

from __future__ import annotations

from pydantic import Field

from seqspec.components.base import Findings
from seqspec.components.masks import Mask
from seqspec.ops import masks as ops


class AllOf(Mask):
    """Allows what all of its parts allow."""

    all: list[Mask] = Field(min_length=1)

    def to_op(self) -> ops.Mask:
        return ops.normalise(ops.AllOf(tuple(part.to_op() for part in self.all)))

    def check(self) -> Findings:
        for n, part in enumerate(self.all):
            yield from (f.under("all", n) for f in part.check())


class AnyOf(Mask):
    """Allows what at least one of its parts allows."""

    any: list[Mask] = Field(min_length=1)

    def to_op(self) -> ops.Mask:
        return ops.normalise(ops.AnyOf(tuple(part.to_op() for part in self.any)))

    def check(self) -> Findings:
        for n, part in enumerate(self.any):
            yield from (f.under("any", n) for f in part.check())
