"""Random inputs for a check: a few sequences of different lengths, and the ways a caller may hand them in.

Every sequence is judged alone, whole and without padding. However it is handed in, the same numbers must come out at
its real positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqspec.graph.signature import Port, Signature
from seqspec.runtime.facts import Facts
from seqspec.runtime.state import Array

LENGTH, ENCODER_LENGTH = 11, 7
MASK_NAMES = ("attention_mask", "decoder_attention_mask")


@dataclass(frozen=True)
class Handed:
    """How sequences go in: which ones, padded on which side, in chunks of which lengths, with a mask or without."""

    name: str
    rows: tuple[int, ...]
    left: bool = False
    chunks: tuple[int, ...] = ()
    masked: bool = True


@dataclass(frozen=True)
class Batch:
    """Sequences as calls take them. `real` is [B, T] of all chunks together, `encoder_real` of what is read once."""

    calls: tuple[Mapping[str, Array], ...]
    real: Array
    encoder_real: Array | None
    last: int
    """The length of the last chunk."""


class Cases:
    """The sequences of one model, drawn from `seed`."""

    def __init__(self, signature: Signature, facts: Mapping[str, Facts], dtype: Any, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.facts, self.dtype, self.stateful = facts, dtype, any(not s.held for s in signature.states)
        self.masks = {fact.mask: name for name, fact in facts.items() if fact.mask}
        self.ports = [p for p in signature.inputs if p.name not in self.masks and not p.name.endswith("position_ids")]
        length, encoder = self._length(LENGTH, once=False), self._length(ENCODER_LENGTH, once=True)
        self.lengths = (length, max(1, length - 4), 1)
        self.encoder_lengths = (encoder, 1, max(1, encoder - 2))
        pairs = zip(self.lengths, self.encoder_lengths, strict=True)
        # arrays [T, …] by input, without padding; an encoder's have a length of their own
        self.sequences = [{p.name: self._draw(p, e if p.once else t) for p in self.ports} for t, e in pairs]

    def alone(self) -> Iterator[Handed]:
        """Each sequence by itself."""
        for row, length in enumerate(self.lengths):
            yield Handed(f"alone, length {length}", (row,), masked=False)

    def ways(self) -> Iterator[Handed]:
        """Every way to hand them in."""
        rows = tuple(range(len(self.sequences)))
        yield from self.alone()
        yield Handed("padded right", rows)
        yield Handed("padded left", rows, left=True)
        # a decoder's first position is real whatever stands there, so padding on the left needs its mask
        if any(fact.pad_id is not None for fact in self.facts.values()):
            yield Handed("padded right, no mask given", rows, masked=False)
        if self.stateful:
            length = max(self.lengths)
            yield Handed("step by step", (0,), chunks=(1,) * self.lengths[0], masked=False)
            yield Handed("in chunks, padded right", rows, chunks=self._chunks(length))
            yield Handed("in chunks, padded left", rows, left=True, chunks=self._chunks(length))

    def batch(self, way: Handed) -> Batch:
        """The calls of a way: arrays by input, the encoder's in the first alone."""
        chosen = [self.sequences[row] for row in way.rows]
        arrays: dict[str, Array] = {}
        real: dict[bool, Array] = {}
        for port in self.ports:
            parts = [sequence[port.name] for sequence in chosen]
            if timed(port):
                arrays[port.name], real[port.once] = self._padded(port, parts, way.left)
            else:
                arrays[port.name] = np.stack(parts)
        if way.masked:
            once = {port.name: port.once for port in self.ports}
            arrays |= {mask: real[once[of]].astype(np.int64) for mask, of in self.masks.items() if of in once}
        chunks = way.chunks or (real[False].shape[1],)
        return Batch(tuple(self._calls(arrays, chunks)), real[False], real.get(True), chunks[-1])

    def _calls(self, arrays: Mapping[str, Array], chunks: tuple[int, ...]) -> Iterator[dict[str, Array]]:
        once = {p.name for p in self.ports if p.once or not timed(p)}
        once |= {mask for mask, of in self.masks.items() if of in once}
        start = 0
        for length in chunks:
            moving = {n: a[:, start : start + length] for n, a in arrays.items() if n not in once}
            yield moving | ({n: arrays[n] for n in once & arrays.keys()} if start == 0 else {})
            start += length

    def _padded(self, port: Port, parts: list[Array], left: bool) -> tuple[Array, Array]:
        """parts [T, …] -> [B, T, …] and what is real of it; padding is what must not be read."""
        longest = max(map(len, parts))
        table = np.full((len(parts), longest, *parts[0].shape[1:]), self._filler(port), parts[0].dtype)
        real = np.zeros(table.shape[:2], bool)
        for row, part in enumerate(parts):
            place = slice(longest - len(part), None) if left else slice(0, len(part))
            table[row, place], real[row, place] = part, True
        return table, real

    def _filler(self, port: Port) -> Any:
        if port.dtype == "float":
            return np.nan
        pad_id = self.facts.get(port.name, Facts()).pad_id
        return 0 if pad_id is None else pad_id

    def _draw(self, port: Port, length: int) -> Array:
        """One sequence of an input: no id that means padding."""
        if not timed(port):
            return self.random.standard_normal(port.shape[1:]).astype(self.dtype)  # type: ignore[arg-type]
        if port.dtype == "float":
            shape = (length, *(size for size in port.shape[2:] if isinstance(size, int)))
            return self.random.standard_normal(shape).astype(self.dtype)
        fact = self.facts.get(port.name, Facts())
        ids = [n for n in range(min(fact.ids or 2, 1 << 16)) if n != fact.pad_id]
        return self.random.choice(ids or [0], length).astype(np.int64)

    def _chunks(self, length: int) -> tuple[int, ...]:
        """Random lengths that sum to `length`."""
        cuts = np.flatnonzero(self.random.random(length - 1) < 0.4) + 1
        return tuple(int(n) for n in np.diff([0, *cuts, length]))

    def _length(self, wanted: int, *, once: bool) -> int:
        limits = [f.max_length for p in self.ports if p.once == once and (f := self.facts.get(p.name)) and f.max_length]
        return min([wanted, *limits])


def timed(port: Port) -> bool:
    """Whether an input has a value for every position; a state to start from has none."""
    return not isinstance(port.shape[1], int)
