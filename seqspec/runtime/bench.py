"""Measures how fast a compiled folder runs: whole sequences, then one position at a time, and the time of each op.

Latencies are measured without a profiler. Ops are timed in a second pass, by onnxruntime's profiler.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqspec.graph.signature import Port
from seqspec.runtime.carrying import Carrying
from seqspec.runtime.cases import Cases
from seqspec.runtime.op_times import OpTime, op_times
from seqspec.runtime.providers import Provider, Settings
from seqspec.runtime.session import Session
from seqspec.runtime.state import Array

_LENGTH, _STEPS = 128, 32


@dataclass(frozen=True)
class Asked:
    """`batch` sequences of `length` positions, of the encoder if there is one; then `steps` positions, one by one.

    Each measurement is made `runs` times. `length` and `steps` are 128 and 32 by default, or what fits into a table of
    positions.
    """

    batch: int = 1
    length: int | None = None
    steps: int | None = None
    runs: int = 5
    threads: int | None = None


@dataclass(frozen=True)
class Phase:
    """Calls of one kind: `positions` of each sequence in a call, after `past` earlier ones."""

    name: str
    positions: int
    past: int
    seconds: tuple[float, ...]
    ops: tuple[OpTime, ...]

    @property
    def median(self) -> float:
        """The median seconds of a call."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Bench:
    """The measurements of one folder. `unit` names a position: tokens, frames, or a whole input such as an image."""

    folder: Path
    providers: tuple[str, ...]
    asked: Asked
    unit: str
    phases: tuple[Phase, ...]

    def rate(self, phase: Phase) -> float:
        """Positions per second, of all sequences together."""
        return self.asked.batch * phase.positions / phase.median

    def to_json(self) -> dict[str, Any]:
        """Plain data; times in milliseconds."""
        return {
            "folder": str(self.folder),
            "providers": list(self.providers),
            "batch": self.asked.batch,
            "threads": self.asked.threads,
            "unit": self.unit,
            "phases": [self._phase(phase) for phase in self.phases],
        }

    def _phase(self, phase: Phase) -> dict[str, Any]:
        times = {"median": phase.median, "least": min(phase.seconds), "most": max(phase.seconds)}
        return {
            "phase": phase.name,
            "positions": phase.positions,
            "past": phase.past,
            "calls": len(phase.seconds),
            "milliseconds": {name: 1e3 * seconds for name, seconds in times.items()},
            "per_second": self.rate(phase),
            "ops": [{"op": op.op, "nodes": op.nodes, "milliseconds": 1e3 * op.seconds} for op in phase.ops],
        }


def bench(folder: Path, asked: Asked, providers: Sequence[Provider] | None = None) -> Bench:
    """Measures with random inputs without padding, the same in both passes; a pass's first round is not counted."""
    session = Session(folder, providers, settings=Settings(asked.threads))
    plan = Plan(session, asked)
    timed_calls: dict[str, list[float]] = {}
    for number in range(asked.runs + 1):
        for name, seconds in plan.calls(session):
            if number:
                timed_calls.setdefault(name, []).append(seconds)
    ops = _profiled(folder, plan, providers)
    phases = (Phase(n, *plan.place(n), tuple(seconds), ops.get(n, ())) for n, seconds in timed_calls.items())
    return Bench(folder, tuple(session.providers), asked, plan.unit, tuple(phases))


class Plan:
    """The calls of one measurement: `run`, or `prefill` and `decode` for a model with a state.

    With two stacks, `prefill` reads the encoder's input and the first position of the decoder's.
    """

    def __init__(self, session: Session, asked: Asked) -> None:
        self.asked, cases = asked, Cases(session.signature, session.facts, session.dtype)
        taken = {port.name for port in session.inputs}
        ports = [port for port in cases.ports if port.name in taken]
        late = [port for port in ports if not port.once and not port.starts]
        self.moving = any(not state.held for state in session.signature.states)
        two, room = any(port.once for port in ports), _room(session, late)
        known = 1 if two else asked.length or 0
        half = max(0, min(_STEPS, (room - known) // 2))
        self.steps = 0 if not self.moving else half if asked.steps is None else asked.steps
        self.length = self._length(_room(session, [p for p in ports if p.once]) if two else room - self.steps)
        self.begins = 1 if two else self.length
        self.unit = _unit(ports)
        sizes = {p.name: self.begins if p in late else self.length for p in ports}
        self.first = {p.name: self._drawn(cases, p, sizes[p.name]) for p in ports}
        past = max(0, self.begins + self.steps - 1)
        self.next = {p.name: self._drawn(cases, p, 1, past) for p in late if p.timed}
        self.of_pairs = {p.name for p in late if p.of_pairs}

    def place(self, phase: str) -> tuple[int, int]:
        """How many positions a call has, and how many there were before the first call of its phase."""
        if phase == "decode":
            return 1, self.begins
        return (1 if self.unit == "inputs" else self.length), 0

    @property
    def begin(self) -> str:
        """The phase of the first call."""
        return "prefill" if self.moving else "run"

    def calls(self, session: Session) -> Iterator[tuple[str, float]]:
        """(phase, seconds) of each call, made one by one."""
        step = _step(session, self.begins + self.steps)
        started = time.perf_counter()
        state = step(self.first, None)
        yield self.begin, time.perf_counter() - started
        for number in range(self.steps):
            keys = self.begins + number + 1
            given = {name: x[:, :, :keys] if name in self.of_pairs else x for name, x in self.next.items()}
            started = time.perf_counter()
            state = step(given, state)
            yield "decode", time.perf_counter() - started

    def _length(self, room: int) -> int:
        return max(1, min(_LENGTH, room)) if self.asked.length is None else self.asked.length

    def _drawn(self, cases: Cases, port: Port, length: int, past: int = 0) -> Array:
        return np.stack([cases.draw(port, length, past) for _ in range(self.asked.batch)])


def _profiled(folder: Path, plan: Plan, providers: Sequence[Provider] | None) -> dict[str, tuple[OpTime, ...]]:
    """The ops of each phase."""
    with tempfile.TemporaryDirectory() as place:
        session = Session(folder, providers, settings=Settings(plan.asked.threads, Path(place) / "profile-"))
        rounds = [[name for name, _ in plan.calls(session)] for _ in range(plan.asked.runs + 1)]
        counted = [["" if n == 0 else name for name in names] for n, names in enumerate(rounds)]
        # the last file runs in every call, one before it in the first of each round
        labels = [[names[0] for names in counted], [name for names in counted for name in names]]
        files = session.end_profiles()
        return op_times(dict(zip(files, labels[-len(files) :], strict=True)))


def _step(session: Session, room: int) -> Callable[[Mapping[str, Array], Any], Any]:
    """(inputs, state) -> state, as in generation if the model can generate."""
    logits = any(port.name == "logits" for port in session.outputs)
    if session.signature.states and logits and session.dtype.name != "bfloat16":
        carrying = Carrying(session, room)
        return lambda inputs, state: carrying.step(inputs, state)[1]
    return lambda inputs, state: session.run(inputs, state).state


def _room(session: Session, ports: Sequence[Port]) -> int:
    """The number of positions in the shortest table of these inputs."""
    limits = [fact.max_length for port in ports if (fact := session.facts.get(port.name)) and fact.max_length]
    return min(limits, default=1 << 30)


def _unit(ports: Sequence[Port]) -> str:
    moving = [port for port in ports if port.timed]
    if not moving:
        return "inputs"
    return "tokens" if any(port.name.endswith("input_ids") for port in moving) else "frames"
