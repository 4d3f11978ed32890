"""Steps a session without copying its state.

States stay in onnxruntime's memory from step to step. If a kernel maintains every cache that grows, and nothing is
padding, each cache has one buffer with room for many steps, which the kernel writes to in place. Reordered beams copy
within it only what they do not share: neither the prompt nor the encoder's states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seqspec.graph.dims import BATCH, ENCODER_TIME, PAST, TIME, evaluate, names
from seqspec.graph.signature import Carried
from seqspec.runtime import providers
from seqspec.runtime.inputs import Call
from seqspec.runtime.session import Session
from seqspec.runtime.state import Array, State

_AHEAD = 1024
"""Spare positions of a new buffer; when it is full, a longer one replaces it."""


@dataclass(frozen=True)
class Held:
    """The state between two steps: onnxruntime's values by the names of the past, sizes, and the mask so far.

    The first `shared` positions of the past are equal in all copies that `spread` made of a row.
    """

    values: Mapping[str, Any]
    sizes: Mapping[str, int]
    mask: Array | None
    in_place: bool
    shared: int = 0


class Carrying:
    """Steps of one generation, of at most `room` positions."""

    def __init__(self, session: Session, room: int) -> None:
        self.session, self.room = session, room
        self.states = session.signature.states
        self.binding, self.taken = session.binding(), session.step_inputs
        self.bound: dict[str, Any] = {}  # the states that `binding` reads, by the names of the past
        self.device = "cuda" if providers.CUDA in session.providers else "cpu"

    def step(self, inputs: Mapping[str, Array], held: Held | None) -> tuple[Array, Held]:
        """Logits and the next state."""
        call = self.session.call(inputs) if held is None else self.session.call(inputs, held.sizes, held.mask)
        held = self._begun(call) if held is None else self._roomy(held, call)
        binding = self.binding
        # kept until the run is over, since a binding only points to them
        arrays = {name: np.ascontiguousarray(a) for name, a in call.arrays.items() if name in self.taken}
        for name, array in arrays.items():
            binding.bind_cpu_input(name, array)
        moved = [state for state in self.states if not state.held and not (held.in_place and _grows(state))]
        for name in ("logits", *(state.present for state in moved)):
            binding.bind_output(name, "cpu" if name == "logits" else self.device)
        for state in self.states:
            value = held.values[state.past]
            if self.bound.get(state.past) is value:
                continue
            self.bound[state.past] = value
            binding.bind_ortvalue_input(state.past, value)
            if held.in_place and _grows(state):
                binding.bind_ortvalue_output(state.present, value)
        self.session.run_bound(binding)
        logits, *presents = binding.get_outputs()
        # a buffer keeps the value that owns its memory
        values = {**held.values, **{s.past: v for s, v in zip(moved, presents, strict=False)}}
        return np.asarray(logits.numpy()), self._next(call, values, held)

    def spread(self, held: Held, count: int) -> Held:
        """The state with each row repeated `count` times, copies side by side."""
        rows = np.arange(held.sizes[BATCH]).repeat(count)
        values = {s.past: self._picked(s, held, rows) for s in self.states}
        mask = None if held.mask is None else held.mask[rows]
        sizes = {**held.sizes, BATCH: len(rows)}
        return replace(held, values=values, sizes=sizes, mask=mask, shared=held.sizes.get(PAST, 0))

    def reorder(self, held: Held, rows: Array) -> Held:
        """The state with these rows, each of which replaces a copy of the same spread row."""
        values = dict(held.values)
        for state in self.states:
            if held.in_place and _grows(state):
                self._move(state, held, rows)
            elif not state.held:
                values[state.past] = self._picked(state, held, rows)
        return replace(held, values=values)

    def _picked(self, state: Carried, held: Held, rows: Array) -> Any:
        """Rows of a state; of a buffer, the filled part in a new buffer."""
        array = held.values[state.past].numpy()
        if not (held.in_place and _grows(state)):
            return self._value(array[rows])
        filled = _upto(state, held.sizes[PAST])
        buffer = np.zeros((len(rows), *array.shape[1:]), array.dtype)
        buffer[filled] = array[filled][rows]
        return self._value(buffer)

    def _move(self, state: Carried, held: Held, rows: Array) -> None:
        """Copies rows within a buffer, without the positions that they share."""
        value, moved = held.values[state.past], np.flatnonzero(rows != np.arange(len(rows)))
        array = value.numpy()  # onnxruntime's own memory on the CPU, a copy elsewhere
        own = _upto(state, held.sizes[PAST], held.shared)[1:]
        array[(moved, *own)] = array[(rows[moved], *own)]
        if self.device != "cpu":
            value.update_inplace(array)

    def _roomy(self, held: Held, call: Call) -> Held:
        """The state with longer buffers if the next positions do not fit."""
        if not held.in_place:
            return held
        past, needed = call.sizes[PAST], call.sizes[PAST] + call.sizes[TIME]
        values = dict(held.values)
        for state in self.states:
            if _grows(state) and values[state.past].shape()[_time(state)] < needed:
                longer = self._buffer(state, held.sizes[BATCH], 2 * needed, values[state.past].numpy().dtype)
                longer[_upto(state, past)] = values[state.past].numpy()[_upto(state, past)]
                values[state.past] = self._value(longer)
        return replace(held, values=values)

    def _begun(self, call: Call) -> Held:
        """The first past: in buffers if nothing is padding, else as the session starts it."""
        in_place = self.session.in_place and (call.carried is None or bool(call.carried.all()))
        values, first = {}, self.session.first(call)
        for state in self.states:
            array = first[state.past]
            if in_place and _grows(state):
                array = self._buffer(state, call.sizes[BATCH], call.sizes[TIME] + _AHEAD, array.dtype)
            values[state.past] = self._value(array)
        return Held(values, {}, None, in_place)

    def _buffer(self, state: Carried, rows: int, length: int, dtype: Any) -> Array:
        """Zeros for `length` positions, or for as many as a generation can have."""
        sizes = {BATCH: rows, PAST: min(length, self.room)}
        return np.zeros(tuple(evaluate(size, sizes) for size in state.shape), dtype)

    def _value(self, array: Array) -> Any:
        return providers.runtime().OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), self.device, 0)

    def _next(self, call: Call, values: Mapping[str, Any], held: Held) -> Held:
        sizes = {name: call.sizes[name] for name in (BATCH, ENCODER_TIME) if name in call.sizes}
        grown = {PAST: call.sizes[PAST] + call.sizes[TIME]}
        return Held(values, {**held.sizes, **sizes, **grown}, call.carried, held.in_place, held.shared)


class Copying:
    """Steps by `Session.run`, with copies: for element types that onnxruntime cannot bind."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.held = {s.past for s in session.signature.states if s.held}

    def step(self, inputs: Mapping[str, Array], state: State | None) -> tuple[Array, State | None]:
        result = self.session.run(inputs, state)
        return result["logits"], result.state

    def spread(self, state: State, count: int) -> State:
        rows = len(next(iter(state.values())))
        return state.reorder(np.arange(rows).repeat(count))

    def reorder(self, state: State, rows: Array) -> State:
        return State(state | State({n: x for n, x in state.items() if n not in self.held}).reorder(rows))


def _grows(state: Carried) -> bool:
    return any(PAST in names(size) for size in state.shape)


def _time(state: Carried) -> int:
    """The axis along which a state grows."""
    return next(axis for axis, size in enumerate(state.shape) if PAST in names(size))


def _upto(state: Carried, end: int, start: int = 0) -> tuple[slice, ...]:
    """The index of positions `start` to `end` of a state that grows, in all rows."""
    return (*[slice(None)] * _time(state), slice(start, end))
