"""Compares two runners, over every way to pass sequences in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from seqspec.diagnostics import CompileError
from seqspec.graph.dims import ENCODER_TIME, PAST, TIME, Shape, evaluate, names, windows
from seqspec.graph.signature import Signature
from seqspec.runtime.cases import Batch, Cases, Handed
from seqspec.runtime.judges import Answer, Runner
from seqspec.runtime.state import MASK, Array

REPORT = "nothing was written; please report it with the spec"


@dataclass(frozen=True)
class Difference:
    """The difference in one output or state, for one way to pass sequences in.

    `absolute` is the largest difference, `largest` the largest value of the judge over all sequences.
    """

    name: str
    way: str
    absolute: float
    largest: float

    @property
    def relative(self) -> float:
        """The difference relative to the largest value."""
        return self.absolute / self.largest if self.largest else self.absolute


@dataclass(frozen=True)
class Verification:
    """The result of a verification against `judge`.

    `limits` are relative to the largest value of each output and state. `note` says what was not checked. `cost` is
    what fewer bits change in each output, relative to its largest value: against the unrounded weights, in float64.
    """

    judge: str
    limits: Mapping[str, float]
    differences: tuple[Difference, ...]
    note: str = ""
    cost: Mapping[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every difference is within its limit."""
        return self.worst is None or self.worst.relative <= self.limits[self.worst.name]

    @property
    def worst(self) -> Difference | None:
        """The difference that is largest in relation to its limit."""
        return max(self.differences, key=lambda d: d.relative / self.limits[d.name], default=None)

    def by_name(self) -> dict[str, Difference]:
        """The largest difference of each output and state."""
        found: dict[str, Difference] = {}
        for difference in self.differences:
            if difference.name not in found or difference.relative > found[difference.name].relative:
                found[difference.name] = difference
        return found

    def require(self) -> None:
        """Raises SEQ406 unless it passed."""
        worst = self.worst
        if self.passed or worst is None:
            return
        text = (
            f"`{worst.name}`, {worst.way}, differs from {self.judge} by {worst.absolute:.3g}, which is "
            f"{worst.relative:.2g} of its largest value; the tolerance is {self.limits[worst.name]:.2g}"
        )
        raise CompileError("SEQ406", text, REPORT)


Told = Callable[[Verification], None]
"""A function that gets the verification once it has passed."""


def judgement(judge: Runner, cases: Cases) -> list[Answer]:
    """The judge's outputs and state for each sequence alone."""
    return [judge.run(cases.batch(way).calls[0], None) for way in cases.alone()]


def compare(
    judged: Runner, alone: Sequence[Answer], signature: Signature, cases: Cases, ways: Iterable[Handed]
) -> list[Difference]:
    """Compares every output, and the state after the last call, in every way, with the judge on each sequence alone."""
    shapes = {p.name: p.shape for p in signature.outputs} | {s.past: s.shape for s in signature.states}
    largest = {name: max(_largest(both.get(name)) for answer in alone for both in answer) for name in shapes}
    found = []
    for way in ways:
        worst = dict.fromkeys(shapes, 0.0)
        for name, row, got in _parts(judged, cases.batch(way), shapes):
            want = _last(_one(alone[way.rows[row]], name, got), shapes[name], got)
            worst[name] = max(worst[name], _apart(got, want))
        found += [Difference(name, way.name, worst[name], largest[name]) for name in shapes]
    return found


def rounding(
    rounded: Runner, alone: Sequence[Answer], signature: Signature, cases: Cases, ways: Iterable[Handed]
) -> dict[str, float]:
    """The relative error of each output and state of `rounded`, which computes as the judge does, in less precision."""
    found: dict[str, float] = {}
    for difference in compare(rounded, alone, signature, cases, ways):
        found[difference.name] = max(found.get(difference.name, 0.0), difference.relative)
    return found


def _parts(judged: Runner, batch: Batch, shapes: Mapping[str, Shape]) -> Iterator[tuple[str, int, Array]]:
    """(name, row, array): each output and state of each row, at the row's real positions."""
    state: dict[str, Array] | None = None
    made: dict[str, list[Array]] = {}
    for call in batch.calls:
        outputs, left = judged.run(call, state)
        state = left or None
        for name, array in outputs.items():
            made.setdefault(name, []).append(array)
    over_time = {name for name in made if TIME in _axes(shapes[name])}
    whole = {name: _joined(parts, shapes[name]) for name, parts in made.items()}
    for name, array in (whole | (state or {})).items():
        if name == MASK:
            continue
        for row in range(len(batch.real)):
            # an output computed from a chunk, as that at its last real token, is undefined if all of it is padding
            if name in over_time or name not in made or batch.real[row, -batch.last :].any():
                yield name, row, _real(array[row], shapes[name][1:], batch, row)


def _joined(parts: list[Array], shape: Shape) -> Array:
    """The outputs of successive calls, joined along time; attention weights are 0 for keys of later calls."""
    timed = [axis for axis, size in enumerate(shape) if TIME in names(size)]
    if not timed:
        return parts[-1]
    for keys in timed[1:]:
        length = parts[-1].shape[keys]
        parts = [np.pad(p, [(0, (n == keys) * (length - p.shape[n])) for n in range(p.ndim)]) for p in parts]
    return np.concatenate(parts, timed[0])


def _real(array: Array, shape: Shape, batch: Batch, row: int) -> Array:
    """The real positions of one row along its axes of time."""
    for axis, size in enumerate(shape):
        found = names(size)
        source = ENCODER_TIME in found
        real = batch.encoder_real if source else batch.real if found & {TIME, PAST} or windows((size,)) else None
        if real is None:
            continue
        if windows((size,)):
            real = real[:, real.shape[1] - array.shape[axis] :]
        if source in batch.in_front:
            count = int(real[row].sum())
            array = array.take(range(evaluate(size, {TIME: count, PAST: 0, ENCODER_TIME: count})), axis)
        else:
            array = np.compress(real[row], array, axis)
    return array


def _one(answer: Answer, name: str, got: Array) -> Array:
    outputs, state = answer
    if name not in outputs and name not in state and got.dtype == bool:
        return np.ones_like(got)  # no mask: nothing is padding
    return np.asarray((outputs[name] if name in outputs else state[name])[0])


def _last(array: Array, shape: Shape, got: Array) -> Array:
    """The last positions of a state that is kept for a window: as many as `got` has, and at least the window's."""
    for axis, size in enumerate(shape[1:]):
        for window in windows((size,)).values():
            length = array.shape[axis]
            array = array.take(range(length - min(length, max(window - 1, got.shape[axis])), length), axis)
    return array


def _axes(shape: Shape) -> set[str]:
    return set().union(*map(names, shape))


def _largest(array: Array | None) -> float:
    return 0.0 if array is None or not array.size else float(np.abs(array.astype(np.float64)).max())


def _apart(got: Array, want: Array) -> float:
    """The largest difference; infinite if shapes differ, or if either has a NaN."""
    if got.shape != want.shape:
        return float("inf")
    gap = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0))
