"""Initial states of recurrent layers: zeros, learned, given by the caller, or taken from another stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from seqspec.components.base import Finding, Findings, Inlet, Word, width_of
from seqspec.components.family import Family
from seqspec.components.states import Memory, Place, Source
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.elementwise import Unary
from seqspec.ops.linear import Linear


class InitialState(Family):
    """Where h (and c) start."""

    kinds: ClassVar = {
        "zeros": "bridge:Zeros",
        "learned": "bridge:Learned",
        "given": "bridge:Given",
        "bridge": "bridge:Bridge",
    }


class Zeros(InitialState):
    """The layer starts from zeros."""

    kind: Literal["zeros"]


class Learned(InitialState):
    """The layer starts from parameters, the same for every row: `h0` [L·D, H], and for an LSTM `c0`."""

    kind: Literal["learned"]


class Given(InitialState):
    """The layer starts from inputs: `initial_state.N.h` [B, L·D, H] (and `.c`), zeros if they are left out."""

    kind: Literal["given"]


class Bridge(InitialState):
    """Layer n starts from layer n of another stack: h0 = map(final state), or map(mean of its outputs).

    From an LSTM, a GRU takes h; from a GRU, an LSTM takes h and starts c at zeros.
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


def check_bridge(bridge: Bridge, place: Place, source: Source) -> Findings:
    """Whether the other stack has what the bridge reads, and in the right width."""
    if place.own.directions == 2:
        text = "a bridge starts one direction, and this layer has two"
        yield Finding("SEQ224", (), text, "start it from `zeros`, `learned` or `given`")
        return
    if bridge.state == "mean":
        for key, neutral in (("direction", "both"), ("layer", "each")):
            if getattr(bridge, key) != neutral:
                yield Finding("SEQ224", (key,), f"`{key}` chooses among final states, and `state: mean` reads none")
        widths = {(source.width, place.own.widths[0])}
    else:
        found = list(_check_finals(bridge, place, source))
        yield from found
        if found:
            return
        flat = source.flat()
        picked = flat[place.first : place.first + place.own.layers] if bridge.layer == "each" else flat[-1:]
        widths = {
            (source.entries[entry].width(bridge.direction, part), place.own.widths[part])
            for entry, _ in picked
            for part in range(_parts(place, source))
        }
    if bridge.map == "copy":
        for other, own in sorted(widths):
            if other != own:
                text = f"a copied state has {other} channels, but the layer's has {own}"
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


def start(
    b: Builder,
    inlet: Inlet,
    x: Value,
    initial: InitialState | None,
    place: Place,
    memories: Mapping[str, Memory],
    given: Sequence[Value],
    *,
    alone: bool,
) -> tuple[Value, ...]:
    """The initial h (and c), [B, L·D, H] each, or [B, H] for an `alone` layer that is run step by step; () for zeros.

    `given` are inputs of the model, which may be None at run time.
    """
    if isinstance(initial, Bridge):
        layers = _bridged(b, inlet, initial, place, memories[initial.from_])
        return layers[0] if alone else tuple(_stack(b, part) for part in zip(*layers, strict=True))
    names = ("h0", "c0")[: len(place.own.widths)]
    if isinstance(initial, Learned):
        from seqspec.ops.initial_state import LearnedState  # not at the top: few layers need it

        rows, widths = place.own.rows, place.own.widths
        states = [b.add(LearnedState(n, rows, w), x) for n, w in zip(names, widths, strict=True)]
    else:
        states = [inlet.take(value, name) for name, value in zip(names, given, strict=False)]
    return tuple(_single(b, state, x) if alone else state for state in states)


def _single(b: Builder, state: Value, x: Value) -> Value:
    """[B, 1, H], which may be None at run time -> [B, H]"""
    from seqspec.ops.initial_state import GivenState
    from seqspec.ops.state import SelectState

    there = b.add(GivenState(1, width_of(state)), state, x) if state.optional else state
    return b.add(SelectState(0), there)


def _stack(b: Builder, states: Sequence[Value]) -> Value:
    """[B, H] each -> [B, L, H]"""
    from seqspec.ops.state import StackStates

    return b.add(StackStates(), *states)


def _bridged(b: Builder, inlet: Inlet, bridge: Bridge, place: Place, memory: Memory) -> list[tuple[Value, ...]]:
    """(h,) or, from LSTM to LSTM, (h, c) for each layer of the entry, [B, H] each."""
    if bridge.state == "mean":
        source, parts = memory.source._replace(mean=inlet.take_optional(memory.source.mean, "mean")), 1
    else:
        finals = [
            tuple(inlet.take(v, f"{'hc'[part]}_{n}") for part, v in enumerate(entry[: len(place.own.widths)]))
            for n, entry in enumerate(memory.source.finals)
        ]
        source, parts = memory.source._replace(finals=finals, mean=None), _parts(place, memory.source)
    return [
        tuple(_start(b, bridge, place, source, layer, part) for part in range(parts))
        for layer in range(place.own.layers)
    ]


def _parts(place: Place, source: Source) -> int:
    """How many of h and c are read: c only goes from LSTM to LSTM."""
    return 2 if place.own.cell and all(entry.cell for entry in source.entries) else 1


def _start(b: Builder, bridge: Bridge, place: Place, source: Source, layer: int, part: int) -> Value:
    """The initial state of one layer of the entry; `part` 0 is h, 1 is c."""
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
    mapped = b.add(Linear(width_of(state), place.own.widths[part]), state, name=name)
    return b.add(Unary("tanh"), mapped) if bridge.map == "linear_tanh" else mapped
