"""Recurrent states as other layers and stacks see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from seqspec.graph.ir import Value


class Layers(NamedTuple):
    """One entry of recurrent layers, as a bridge sees it. `widths` are the channels of h and, beside it, of c."""

    layers: int
    directions: int
    widths: tuple[int, ...]

    @property
    def rows(self) -> int:
        """How many states there are: forward before backward, layer by layer."""
        return self.layers * self.directions

    @property
    def cell(self) -> bool:
        """Whether there is a c beside h."""
        return len(self.widths) > 1

    def width(self, direction: str, part: int = 0) -> int:
        """Channels of one layer's h, or c (`part` 1), as `direction` reads it."""
        return self.widths[part] * (self.directions if direction == "both" else 1)


class Place(NamedTuple):
    """Where the reading entry stands: its first layer is number `first` of the `total` in its stack."""

    own: Layers
    first: int
    total: int


class Source(NamedTuple):
    """The stack that is read: its recurrent entries, the width of its outputs, and when building, their values."""

    entries: Sequence[Layers]
    width: int
    finals: Sequence[tuple[Value, ...]] = ()  # (h,) or (h, c) of each entry
    mean: Value | None = None

    def flat(self) -> list[tuple[int, int]]:
        """(entry, layer within it) of every single layer, in order."""
        return [(n, layer) for n, entry in enumerate(self.entries) for layer in range(entry.layers)]


class Memory(NamedTuple):
    """Another stack as a layer reads it: outputs [B, S, M], their padding, and the states a bridge may want."""

    x: Value
    mask: Value | None
    source: Source
