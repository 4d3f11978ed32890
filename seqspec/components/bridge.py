"""How a recurrent layer starts: from zeros, or from the state of another stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from seqspec.components.base import Component, Finding, Findings, Shorthand, Word, width_of
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.elementwise import Unary
from seqspec.ops.linear import Linear


class Zeros(Component):
    """The layer starts from zeros."""

    kind: Literal["zeros"]


class Bridge(Component):
    """Layer n starts from layer n of another stack: h0 = map(final state), or map(mean of its outputs).

    LSTM to GRU takes h; GRU to LSTM starts c at zeros.
    """

    kind: Literal["bridge"]
    from_: Word = Field(alias="from")
    """The stack it starts from."""
    map: Literal["copy", "linear", "linear_tanh"] = "copy"
    """`copy` needs equal widths; `linear_tanh` is Bahdanau's tanh(W h)."""
    state: Literal["final", "mean"] = "final"
    """The final state of a recurrent stack, or the mean of its outputs over real tokens."""
    layer: Literal["each", "last"] = "each"
    """`each`: layer n reads layer n. `last`: every layer reads the last one."""
    direction: Literal["both", "forward", "backward"] = "both"
    """Which direction's state is read; `both` concatenates forward and backward."""


InitialState = Annotated[Zeros | Bridge, Field(discriminator="kind"), Shorthand]


class Layers(NamedTuple):
    """One entry of recurrent layers, as a bridge sees it. `cell`: whether there is a c beside h."""

    layers: int
    directions: int
    hidden: int
    cell: bool

    def width(self, direction: str) -> int:
        """Channels of one layer's state as `direction` reads it."""
        return self.hidden * (self.directions if direction == "both" else 1)


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


def check_bridge(bridge: Bridge, place: Place, source: Source) -> Findings:
    """Whether the other stack has what the bridge reads, and in the right width."""
    if bridge.state == "mean":
        for key, neutral in (("direction", "both"), ("layer", "each")):
            if getattr(bridge, key) != neutral:
                yield Finding("SEQ224", (key,), f"`{key}` chooses among final states, and `state: mean` reads none")
        widths = {source.width}
    else:
        found = list(_check_finals(bridge, place, source))
        yield from found
        if found:
            return
        flat = source.flat()
        picked = flat[place.first : place.first + place.own.layers] if bridge.layer == "each" else flat[-1:]
        widths = {source.entries[entry].width(bridge.direction) for entry, _ in picked}
    if bridge.map == "copy":
        for other in widths - {place.own.hidden}:
            text = f"a copied state has {other} channels, but hidden_size is {place.own.hidden}"
            yield Finding("SEQ204", ("map",), text, "make them equal, or write `map: linear`")


def _check_finals(bridge: Bridge, place: Place, source: Source) -> Findings:
    count = len(source.flat())
    if not count:
        yield Finding("SEQ224", ("from",), f"`{bridge.from_}` has no recurrent layer whose state could be read")
    elif count != place.total and bridge.layer == "each":
        text = f"{place.total} recurrent layers here start from {count} in `{bridge.from_}`"
        yield Finding("SEQ210", (), text, "make the numbers equal, or write `layer: last`")
    elif bridge.direction != "both" and any(entry.directions == 1 for entry in source.entries):
        yield Finding("SEQ224", ("direction",), f"`{bridge.from_}` has one direction, so there is none to choose")


def starts(b: Builder, bridge: Bridge, place: Place, source: Source) -> list[tuple[Value, ...]]:
    """(h,) or, from LSTM to LSTM, (h, c) for each layer of the entry, [B, H] each."""
    cells = place.own.cell and bridge.state == "final" and all(entry.cell for entry in source.entries)
    return [
        tuple(_start(b, bridge, place, source, layer, part) for part in range(2 if cells else 1))
        for layer in range(place.own.layers)
    ]


def stack(b: Builder, states: Sequence[Value]) -> Value:
    """[B, H] each -> [B, L, H]"""
    from seqspec.ops.state import StackStates  # here for the reason given in recurrent.py

    return b.add(StackStates(), *states)


def _start(b: Builder, bridge: Bridge, place: Place, source: Source, layer: int, part: int) -> Value:
    """The start of one layer of the entry; `part` 0 is h, 1 is c."""
    from seqspec.ops.state import SelectState

    if source.mean is not None:
        state = source.mean
    else:
        entry, theirs = source.flat()[place.first + layer if bridge.layer == "each" else -1]
        take = "all" if bridge.direction == "both" else bridge.direction
        state = b.add(SelectState(theirs, source.entries[entry].directions, take), source.finals[entry][part])
    if bridge.map == "copy":
        return state
    name = ("bridge", "bridge_cell")[part] + (f"_{layer}" if place.own.layers > 1 else "")
    mapped = b.add(Linear(width_of(state), place.own.hidden), state, name=name)
    return b.add(Unary("tanh"), mapped) if bridge.map == "linear_tanh" else mapped
