"""Sparse masks: windows, global positions and block-sparse patterns."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seqspec.components.base import Count, Finding, Findings
from seqspec.components.masks import Distance, Mask
from seqspec.ops import masks as ops


class Window(Mask):
    """A position sees its neighbours: |i - j| < size, itself included; or `left` before and `right` after it."""

    kind: Literal["window"]
    size: Count | None = None
    """|i - j| < size: a causal window of 3 sees itself and the 2 before it."""
    left: Distance | None = None
    """How many positions before itself it sees; unbounded if only `right` is given."""
    right: Distance | None = None
    """How many positions after itself it sees; unbounded if only `left` is given."""

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


class Global(Mask):
    """Some positions see everything and are seen by everything, as in Longformer."""

    kind: Literal["global"]
    tokens: list[Distance] = Field(min_length=1)
    """Positions, counting real tokens from 0."""

    def to_op(self) -> ops.Mask:
        return ops.Global(tuple(sorted(set(self.tokens))))


class BlockSparse(Mask):
    """Blocks see their neighbours, the first blocks and some random ones, as in BigBird.

    Each block draws `random_blocks` of the blocks before it, and the two see each other. A draw depends only on the
    block's number and the `seed`, so that the mask of a growing text never changes.
    """

    kind: Literal["block_sparse"]
    block_size: Count
    """Positions in a block, counting real tokens."""
    window_blocks: Count = 3
    """How many neighbouring blocks it sees, itself included: an odd number."""
    global_blocks: Distance = 1
    """How many blocks at the start see everything and are seen by everything."""
    random_blocks: Distance = 3
    """How many blocks each one draws."""
    seed: Distance | None = None
    """The seed of the draws; 0 by default."""

    def to_op(self) -> ops.Mask:
        reach = self.window_blocks // 2
        return ops.BlockSparse(self.block_size, reach, self.global_blocks, self.random_blocks, self.seed or 0)

    def check(self) -> Findings:
        if self.window_blocks % 2 == 0:
            text = f"window_blocks ({self.window_blocks}) counts the block itself and both sides, so it must be odd"
            yield Finding("SEQ106", ("window_blocks",), text)
        if self.seed is not None and not self.random_blocks:
            yield Finding("SEQ232", ("seed",), "`seed` says what is drawn, and random_blocks is 0")
