"""Random inputs for a check: a few sequences of different lengths, and the ways in which a caller may pass them.

The judge computes each sequence alone, whole and without padding. However a sequence is passed, the outputs at its real
positions must be the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqspec.graph.dims import ENCODER_TIME, PAST, TIME, evaluate, names
from seqspec.graph.signature import Port, Signature
from seqspec.runtime.facts import Facts
from seqspec.runtime.state import Array

LENGTH, ENCODER_LENGTH, PREFIX = 11, 7, 4


@dataclass(frozen=True)
class Handed:
    """A way to pass sequences: which ones, the side of the padding, the lengths of chunks, with a mask or without."""

    name: str
    rows: tuple[int, ...]
    left: bool = False
    chunks: tuple[int, ...] = ()
    masked: bool = True


@dataclass(frozen=True)
class Batch:
    """Sequences as inputs of calls. `real` is [B, T] of all chunks together, `encoder_real` that of an encoder's input.

    `in_front` contains True if the encoder's input is sound, and False if the decoder's or only input is. The positions
    that frames of sound become stand before the padding, even if that was on the left; so does what is told of them.
    """

    calls: tuple[Mapping[str, Array], ...]
    real: Array
    encoder_real: Array | None
    last: int
    """The length of the last chunk."""
    in_front: frozenset[bool] = frozenset()


class Cases:
    """The sequences of one model, drawn from `seed`."""

    def __init__(self, signature: Signature, facts: Mapping[str, Facts], dtype: Any, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.facts, self.dtype = facts, dtype
        # a file whose only state is the past mask takes that mask as an input instead
        looks_back = any(PAST in names(size) for p in signature.inputs for size in p.shape)
        self.stateful = looks_back or any(not s.held for s in signature.states)
        self.masks = {fact.mask: name for name, fact in facts.items() if fact.mask}
        self.ports = [p for p in signature.inputs if p.name not in self.masks and not p.name.endswith("position_ids")]
        # stacks that read sound: they may have fewer positions than frames, all in front
        self.sounds = frozenset(p.of_encoder for p in self.ports if p.is_sound)
        self.has_encoder = any(p.of_encoder for p in self.ports)
        self.prefixed = any(p.dtype != "float" and not p.timed and not self._of_encoder(p) for p in self.ports)
        length, encoder = self._length(LENGTH, source=False), self._length(ENCODER_LENGTH, source=True)
        self.lengths = (length, max(1, length - 4), 1)
        self.encoder_lengths = (encoder, 1, max(1, encoder - 2))
        pairs = zip(self.lengths, self.encoder_lengths, strict=True)
        # arrays [T, …] by input, without padding; those of an encoder have their own length
        self.sequences = [{p.name: self.draw(p, e if self._of_encoder(p) else t) for p in self.ports} for t, e in pairs]

    def alone(self) -> Iterator[Handed]:
        """Each sequence by itself."""
        for row, length in enumerate(self.lengths):
            yield Handed(f"alone, length {length}", (row,), masked=False)

    def ways(self) -> Iterator[Handed]:
        """Every way to pass them."""
        rows = tuple(range(len(self.sequences)))
        yield from self.alone()
        yield Handed("padded right", rows)
        yield Handed("padded left", rows, left=True)
        # a decoder's first position is real whatever its id, so padding on the left needs a mask
        if all(self.facts[name].pad_id is not None for name in self.masks.values()):
            yield Handed("padded right, no mask given", rows, masked=False)
        limit = min((f.same_in_steps for f in self.facts.values() if f.same_in_steps), default=max(self.lengths))
        rows = tuple(row for row in rows if self.lengths[row] <= limit)
        if self.stateful and rows:
            length = self.lengths[rows[0]]
            if self.prefixed:
                # all positions see the whole prefix, so it has to be in the first chunk
                rest = self._chunks(length - PREFIX) if length > PREFIX else ()
                yield Handed("in chunks, padded right", rows, chunks=(min(PREFIX, length), *rest))
                return
            yield Handed("step by step", rows[:1], chunks=(1,) * length, masked=False)
            yield Handed("in chunks, padded right", rows, chunks=self._chunks(length))
            yield Handed("in chunks, padded left", rows, left=True, chunks=self._chunks(length))

    def batch(self, way: Handed) -> Batch:
        """The calls of a way: arrays by input, those of the encoder in the first call only."""
        chosen = [self.sequences[row] for row in way.rows]
        arrays: dict[str, Array] = {}
        for port in self.ports:
            in_front = port.of_encoder in self.sounds and not port.is_sound
            parts = [sequence[port.name] for sequence in chosen]
            arrays[port.name] = self._padded(port, parts, way.left and not in_front)
        lengths = {True: self.encoder_lengths, False: self.lengths}
        moving = {port.of_encoder for port in self.ports if port.timed}
        real = {of: _real([lengths[of][row] for row in way.rows], way.left) for of in moving}
        if way.masked:
            sides = {port.name: port.of_encoder for port in self.ports}
            arrays |= {mask: real[sides[of]].astype(np.int64) for mask, of in self.masks.items() if of in sides}
        real.setdefault(False, np.ones((len(chosen), 1), bool))  # an image has one time
        chunks = way.chunks or (real[False].shape[1],)
        return Batch(tuple(self._calls(arrays, chunks)), real[False], real.get(True), chunks[-1], self.sounds)

    def _calls(self, arrays: Mapping[str, Array], chunks: tuple[int, ...]) -> Iterator[dict[str, Array]]:
        if len(chunks) == 1:
            yield dict(arrays)
            return
        once = {p.name for p in self.ports if p.of_encoder or not p.timed}
        once |= {mask for mask, of in self.masks.items() if of in once}
        axes = {p.name: p.time_axis for p in self.ports if p.name not in once}
        looking = {p.name for p in self.ports if p.of_pairs}
        end = 0
        for length in chunks:
            start, end = end, end + length
            moving = {n: a.take(range(start, end), axes.get(n, 1)) for n, a in arrays.items() if n not in once}
            moving |= {n: moving[n][:, :, :end] for n in looking & moving.keys()}
            yield moving | ({n: arrays[n] for n in once & arrays.keys()} if start == 0 else {})

    def _padded(self, port: Port, parts: list[Array], left: bool) -> Array:
        """parts [T, …] -> [B, T, …], padded along every axis of time with a value that shows if it is read."""
        shape = tuple(map(max, zip(*(part.shape for part in parts), strict=True)))
        table = np.full((len(parts), *shape), self._filler(port), parts[0].dtype)
        for row, part in enumerate(parts):
            ends = zip(part.shape, shape, strict=True)
            table[(row, *(slice(whole - n, None) if left else slice(0, n) for n, whole in ends))] = part
        return table

    def _filler(self, port: Port) -> Any:
        if port.dtype == "float":
            return np.nan
        pad_id = self.facts.get(port.name, Facts()).pad_id
        return 0 if pad_id is None else pad_id

    def draw(self, port: Port, length: int, past: int = 0) -> Array:
        """One random sequence of an input, without the padding id."""
        shape = tuple(evaluate(size, {TIME: length, ENCODER_TIME: length, PAST: past}) for size in port.shape[1:])
        if port.dtype == "float":
            return self.random.standard_normal(shape).astype(self.dtype)
        fact = self.facts.get(port.name, Facts())
        prefix = 1 if self._of_encoder(port) in self.sounds else min(length, PREFIX)
        count = fact.ids or (2 if port.timed else prefix + 1)  # a mask or documents, or a prefix length
        ids = [n for n in range(min(count, 1 << 16)) if n != fact.pad_id]
        return np.asarray(self.random.choice(ids or [0], shape), np.int64)

    def _of_encoder(self, port: Port) -> bool:
        """Whether an input belongs to an encoder's sequences, as does a prefix length, which has no axis of time."""
        return port.of_encoder or (self.has_encoder and not port.timed and not port.name.startswith("decoder_"))

    def _chunks(self, length: int) -> tuple[int, ...]:
        """Random lengths that sum to `length`."""
        cuts = np.flatnonzero(self.random.random(length - 1) < 0.4) + 1
        return tuple(int(n) for n in np.diff([0, *cuts, length]))

    def _length(self, wanted: int, *, source: bool) -> int:
        ports = [p for p in self.ports if p.of_encoder == source]
        limits = [f.max_length for p in ports if (f := self.facts.get(p.name)) and f.max_length]
        return min([wanted, *limits])


def _real(lengths: list[int], left: bool) -> Array:
    """[B, T], True at the real positions of sequences padded to the longest of `lengths`."""
    longest = max(lengths)
    place = np.arange(longest)
    ends = np.array(lengths)[:, None]
    return np.asarray(place >= longest - ends if left else place < ends)
