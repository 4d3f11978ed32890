"""Recurrent states as other layers and stacks see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from seqspec.graph.ir import Value


class Layers(NamedTuple):
    """One entry of recurrent layers, as a bridge sees it. `widths` are the channels of h and, for an LSTM, of c."""

    layers: int
    directions: int
    widths: tuple[int, ...]

    @property
    def rows(self) -> int:
        """The number of states: layer by layer, forward before backward."""
        return self.layers * self.directions

    @property
    def cell(self) -> bool:
        """Whether there is a cell state c."""
        return len(self.widths) > 1

    def width(self, direction: str, part: int = 0) -> int:
        """Channels of one layer's h, or c (`part` 1), as `direction` reads it."""
        return self.widths[part] * (self.directions if direction == "both" else 1)


class Place(NamedTuple):
    """The position of the reading entry: its first layer is number `first` of the `total` in its stack."""

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
        """(entry, layer within it) for every single layer, in order."""
        return [(n, layer) for n, entry in enumerate(self.entries) for layer in range(entry.layers)]


class Memory(NamedTuple):
    """Another stack as a layer reads it: outputs [B, S, M], their padding mask, and the states for a bridge."""

    x: Value
    mask: Value | None
    source: Source
