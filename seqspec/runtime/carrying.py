"""Stepping a session without copying what it carries.

States stay in onnxruntime's memory from step to step. Where every cache that grows is a kernel's own, and nothing is
padding, each has one buffer with room for all steps, which the kernel writes into and nobody copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqspec.graph.dims import BATCH, ENCODER_TIME, PAST, TIME, evaluate, names
from seqspec.graph.signature import Carried
from seqspec.runtime import providers
from seqspec.runtime.inputs import Call
from seqspec.runtime.session import Session
from seqspec.runtime.state import Array


@dataclass(frozen=True)
class Held:
    """What one step leaves for the next: onnxruntime's values by the names of the past, sizes, and the mask so far."""

    values: Mapping[str, Any]
    sizes: Mapping[str, int]
    mask: Array | None
    in_place: bool


class Carrying:
    """Steps of one generation, of at most `room` positions."""

    def __init__(self, session: Session, room: int) -> None:
        self.session, self.room = session, room
        self.states = session.signature.states
        self.binding, self.taken = session.binding(), session.step_inputs
        self.device = "cuda" if providers.CUDA in session.providers else "cpu"

    def step(self, inputs: Mapping[str, Array], held: Held | None) -> tuple[Array, Held]:
        """Logits, and what is carried on."""
        call = self.session.call(inputs) if held is None else self.session.call(inputs, held.sizes, held.mask)
        held = self._begun(call) if held is None else held
        binding = self.binding
        binding.clear_binding_inputs()
        binding.clear_binding_outputs()
        # kept until the run is over, since a binding only points at them
        arrays = {name: np.ascontiguousarray(a) for name, a in call.arrays.items() if name in self.taken}
        for name, array in arrays.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("logits")
        moved = [state for state in self.states if not state.held and not (held.in_place and _grows(state))]
        for state in moved:
            binding.bind_output(state.present, self.device)
        for state in self.states:
            binding.bind_ortvalue_input(state.past, held.values[state.past])
            if held.in_place and _grows(state):
                binding.bind_ortvalue_output(state.present, held.values[state.past])
        self.session.run_bound(binding)
        logits, *presents = binding.get_outputs()
        # a buffer stays the value that owns its memory
        values = {**held.values, **{s.past: v for s, v in zip(moved, presents, strict=False)}}
        return np.asarray(logits.numpy()), self._next(call, values, held)

    def _begun(self, call: Call) -> Held:
        """The first past: buffers where all is real, else what the session starts with."""
        in_place = self.session.in_place and (call.carried is None or bool(call.carried.all()))
        values, first = {}, self.session.first(call)
        for state in self.states:
            array = first[state.past]
            if in_place and _grows(state):
                shape = (evaluate(size, {BATCH: call.sizes[BATCH], PAST: self.room}) for size in state.shape)
                array = np.zeros(tuple(shape), array.dtype)
            values[state.past] = providers.runtime().OrtValue.ortvalue_from_numpy(array, self.device, 0)
        return Held(values, {}, None, in_place)

    def _next(self, call: Call, values: Mapping[str, Any], held: Held) -> Held:
        sizes = {name: call.sizes[name] for name in (BATCH, ENCODER_TIME) if name in call.sizes}
        grown = {PAST: call.sizes[PAST] + call.sizes[TIME]}
        return Held(values, {**held.sizes, **sizes, **grown}, call.carried, held.in_place)


def _grows(state: Carried) -> bool:
    return any(PAST in names(size) for size in state.shape)
