"""Masks: who may attend to whom. Padding is never written; it follows from the input."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from seqspec.components.base import Component, Count, Finding, Findings, Shorthand
from seqspec.ops import masks as ops

Distance = Annotated[int, Field(ge=0)]


class Causal(Component):
    """A position sees itself and what came before it."""

    kind: Literal["causal"]

    def to_op(self) -> ops.Mask:
        return ops.CAUSAL

    def check(self) -> Findings:
        yield from ()


class NoMask(Component):
    """Every position sees every other."""

    kind: Literal["none"]

    def to_op(self) -> ops.Mask:
        return ops.EVERYTHING

    def check(self) -> Findings:
        yield from ()


class Window(Component):
    """A position sees its neighbours: |i - j| < size, itself counted; or so many `left` and `right` of it."""

    kind: Literal["window"]
    size: Count | None = None
    """|i - j| < size: a causal window of 3 sees itself and the 2 before it."""
    left: Distance | None = None
    """How many positions before it are seen; itself not counted."""
    right: Distance | None = None
    """How many positions after it are seen; itself not counted."""

    def to_op(self) -> ops.Mask:
        if self.size is not None:
            return ops.Band(self.size - 1, self.size - 1)
        return ops.Band(self.left, self.right)

    def check(self) -> Findings:
        sides = self.left is not None or self.right is not None
        if self.size is not None and sides:
            yield Finding("SEQ110", ("size",), "a window has either `size`, or `left` and `right`", "keep one form")
        if self.size is None and not sides:
            yield Finding("SEQ102", (), "missing field `size` of `window`", "or write `left` and `right`")


class AllOf(Component):
    """A pair may attend where every part allows it."""

    all: list[Mask] = Field(min_length=1)

    def to_op(self) -> ops.Mask:
        return ops.normalise(ops.AllOf(tuple(part.to_op() for part in self.all)))

    def check(self) -> Findings:
        for n, part in enumerate(self.all):
            yield from (f.under("all", n) for f in part.check())


class AnyOf(Component):
    """A pair may attend where some part allows it."""

    any: list[Mask] = Field(min_length=1)

    def to_op(self) -> ops.Mask:
        return ops.normalise(ops.AnyOf(tuple(part.to_op() for part in self.any)))

    def check(self) -> Findings:
        for n, part in enumerate(self.any):
            yield from (f.under("any", n) for f in part.check())


def _tag(value: Any) -> str | None:
    """Which class a value is of: those without a `kind` are told by their key."""
    if isinstance(value, AllOf | AnyOf):
        return "<all>" if isinstance(value, AllOf) else "<any>"
    if not isinstance(value, dict):
        return getattr(value, "kind", None)
    return "<all>" if "all" in value else "<any>" if "any" in value else value.get("kind")


Mask = Annotated[
    Annotated[Causal, Tag("causal")]
    | Annotated[NoMask, Tag("none")]
    | Annotated[Window, Tag("window")]
    | Annotated[AllOf, Tag("<all>")]
    | Annotated[AnyOf, Tag("<any>")],
    Discriminator(_tag),
    Shorthand,
]

