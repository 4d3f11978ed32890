"""Masks: who may attend to whom. Padding is never written; it follows from the input."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from seqspec.components.base import ByKind, Component, Count, Finding, Findings, Word
from seqspec.ops import masks as ops

Distance = Annotated[int, Field(ge=0)]
TAKEN = frozenset({"input_ids", "attention_mask", "position_ids", "token_type_ids", "document_ids", "prefix_length"})
TAKEN |= {"features", "input_features", "pixel_values", "labels", "state"}
"""Names of inputs that a given mask cannot have."""


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


class Prefix(Component):
    """Every position sees the first `prefix_length` ones, a number given for each row at run time; 0 where it is not.

    With `any: [causal, prefix]` what is given is read in both directions, and what is written in one.
    """

    kind: Literal["prefix"]

    def to_op(self) -> ops.Mask:
        return ops.Prefix()

    def check(self) -> Findings:
        yield from ()


class Global(Component):
    """Some positions see all and are seen by all, as in Longformer."""

    kind: Literal["global"]
    tokens: list[Distance] = Field(min_length=1)
    """Positions, counting real tokens from 0."""

    def to_op(self) -> ops.Mask:
        return ops.Global(tuple(sorted(set(self.tokens))))

    def check(self) -> Findings:
        yield from ()


class BlockSparse(Component):
    """Blocks see their neighbours, the first blocks, and some that are drawn for each, as in BigBird.

    Each block draws `random_blocks` of those before it, by its number and the `seed` alone, and the two see each other:
    a text that grows keeps its mask.
    """

    kind: Literal["block_sparse"]
    block_size: Count
    """Positions in a block, counting real tokens."""
    window_blocks: Count = 3
    """Neighbouring blocks that are seen, itself counted: an odd number."""
    global_blocks: Distance = 1
    """How many blocks at the start see all and are seen by all."""
    random_blocks: Distance = 3
    """How many blocks each one draws."""
    seed: Distance | None = None
    """What is drawn; 0 by default."""

    def to_op(self) -> ops.Mask:
        reach = self.window_blocks // 2
        return ops.BlockSparse(self.block_size, reach, self.global_blocks, self.random_blocks, self.seed or 0)

    def check(self) -> Findings:
        if self.window_blocks % 2 == 0:
            text = f"window_blocks ({self.window_blocks}) counts the block itself and both sides, so it must be odd"
            yield Finding("SEQ106", ("window_blocks",), text)
        if self.seed is not None and not self.random_blocks:
            yield Finding("SEQ232", ("seed",), "`seed` says what is drawn, and random_blocks is 0")


class Documents(Component):
    """A position sees its own document: those with its number in `document_ids`, given at run time.

    A document is a run of equal numbers. Positions start anew in each.
    """

    kind: Literal["documents"]

    def to_op(self) -> ops.Mask:
        return ops.Documents()

    def check(self) -> Findings:
        yield from ()


class Given(Component):
    """A mask given at run time as an input of this name, [B, T, S]: 1 or true where a query may attend."""

    kind: Literal["given"]
    name: Word
    """The input's name."""

    def to_op(self) -> ops.Mask:
        return ops.Given(self.name)

    def check(self) -> Findings:
        if self.name in TAKEN or self.name.startswith("decoder_"):
            text = f"`{self.name}` is the name of another input"
            yield Finding("SEQ107", ("name",), text, "choose a name of your own")


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


Mask = Annotated[
    Causal | NoMask | Window | Prefix | Global | BlockSparse | Documents | Given | AllOf | AnyOf,
    ByKind,
]
