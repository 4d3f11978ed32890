"""Checks a caller's inputs against the signature, and fills in those that may be left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from seqspec.diagnostics import RuntimeFault, arguments, did_you_mean
from seqspec.graph.dims import BATCH, PAST, TIME, Size, evaluate, names, show, windows
from seqspec.graph.signature import Port, Signature
from seqspec.runtime.facts import Facts
from seqspec.runtime.state import Array, as_array


class Call:
    """One call: `arrays` for every port read in it, and `sizes` (batch, times, past).

    Masks are int64, [B, P + T] if they cover the past. `carried` is the mask to keep for the next call, if any.
    `past_documents` [B, P] says which documents the past is of: None is document 0. `may_be_empty` allows a call
    without positions, as a stream may bring none.
    """

    def __init__(
        self,
        ports: Iterable[Port],
        facts: Mapping[str, Facts],
        given: Mapping[str, npt.ArrayLike],
        sizes: Mapping[str, int],
        past_mask: Array | None,
        dtype: Any,
        *,
        past_documents: Array | None = None,
        may_be_empty: bool = False,
    ) -> None:
        self.may_be_empty = may_be_empty
        self.ports = {port.name: port for port in ports}
        self.facts, self.dtype, self.past_mask = facts, dtype, past_mask
        self.past_documents = past_documents
        self.masks = {fact.mask: name for name, fact in facts.items() if fact.mask in self.ports}
        self.of_state = frozenset(sizes)
        self.sizes = {PAST: 0, **sizes}
        self.arrays: dict[str, Array] = {}
        self.carried: Array | None = None
        for name, port in self.ports.items():
            if name in given and name not in self.masks:
                self.arrays[name] = self._checked(port, given[name])
        for name, of in self.masks.items():
            self.arrays[name] = self._mask(self.ports[name], of, given.get(name))
        self._fill()
        for name, fact in facts.items():
            if name in self.arrays:
                self._within(name, fact)

    @property
    def past_real(self) -> Array | None:
        """Which positions of the past are real, [B, P], by the mask of this call; None if the model keeps no mask."""
        return None if self.carried is None else self.carried[:, : self.sizes[PAST]]

    def _checked(self, port: Port, value: npt.ArrayLike) -> Array:
        """The array in the port's element type. New sizes are noted, known ones compared: SEQ504, SEQ509, SEQ513."""
        array = self._typed(port, value)
        if array.ndim != len(port.shape):
            raise self._misshaped(port, array, f"{len(port.shape)} axes")
        for size, length in zip(port.shape, array.shape, strict=True):
            if length == 0 and not (self.may_be_empty and TIME in names(size)):
                text = f"`{port.name}` is {list(array.shape)}; at least one sequence and one position are needed"
                raise RuntimeFault("SEQ513", text)
            if self._expected(size, length) == length:
                continue
            if str(size) in self.of_state:
                text = f"`{port.name}` has a {size} of {length}, and the state one of {self._known(size)}"
                raise RuntimeFault("SEQ509", text, "pick rows of the state with `.reorder`")
            raise self._misshaped(port, array, f"here [{', '.join(str(self._known(s)) for s in port.shape)}]")
        return array

    def _expected(self, size: Size, length: int) -> int:
        """The length of an axis; a size that is not known yet is set to `length`."""
        known = self._known(size)
        return known if isinstance(known, int) else self.sizes.setdefault(known, length)

    def _known(self, size: Size) -> int | str:
        try:
            return evaluate(size, self.sizes)
        except KeyError:
            return str(size)

    def _typed(self, port: Port, value: npt.ArrayLike) -> Array:
        array = as_array(value, port.name)
        if port.dtype == "float":
            if array.dtype != self.dtype:
                text = f"`{port.name}` is {array.dtype}, and the model computes in {self.dtype}"
                raise RuntimeFault("SEQ505", text, f"give it as `.astype(numpy.{self.dtype})`")
            return array
        counts = self.facts.get(port.name, Facts()).ids is not None
        if array.dtype.kind not in ("iu" if counts else "iub"):
            what = "int64 or int32" if counts else "integers, or booleans where they are 0 and 1"
            raise RuntimeFault("SEQ505", f"`{port.name}` is {array.dtype}; it takes {what}")
        return array.astype(np.int64)

    def _mask(self, port: Port, of: str, value: npt.ArrayLike | None) -> Array:
        """The whole mask: the past's, then the given one, or else the one that the ids imply. 1 is real."""
        past = self.sizes[PAST] if port.looks_back else 0
        batch, whole_time = (evaluate(size, self.sizes) for size in port.shape)
        time = whole_time - past
        if value is None:
            mask = self._own(of, past) if self.facts[of].pad_id is not None else np.ones((batch, time), bool)
        else:
            given = self._typed(port, value)
            if given.shape not in ((batch, time), (batch, past + time)):
                whole = f" or {[batch, past + time]}, the past of {past} included" if past else ""
                raise self._misshaped(port, given, f"{[batch, time]}{whole}")
            mask = given != 0
        if mask.shape[1] < past + time:
            before = np.ones((batch, past), bool) if self.past_mask is None else self.past_mask
            mask = np.concatenate([before, mask], 1)
        if port.looks_back:
            self.carried = mask
        return mask.astype(np.int64)

    def _own(self, of: str, past: int) -> Array:
        """[B, T] from the chunk's ids: False at padding."""
        ids, fact = self.arrays[of], self.facts[of]
        real: Array = ids != fact.pad_id
        if fact.first_is_real and past == 0:
            real[:, :1] = True
        return real

    def _fill(self) -> None:
        """Sets other optional inputs that are missing to zeros."""
        for name, port in self.ports.items():
            if name not in self.arrays and port.optional:
                shape = tuple(evaluate(size, self.sizes) for size in port.shape)
                self.arrays[name] = np.zeros(shape, self.dtype if port.dtype == "float" else port.dtype)

    def _within(self, name: str, fact: Facts) -> None:
        """SEQ510 for ids outside their table, SEQ506 for rows longer than the table of positions."""
        array = self.arrays[name]
        if fact.ids is not None and array.size and (array.min() < 0 or array.max() >= fact.ids):
            place = tuple(map(int, np.argwhere((array < 0) | (array >= fact.ids))[0]))
            text = f"`{name}`{list(place)} is {array[place]}; ids run from 0 to {fact.ids - 1}"
            raise RuntimeFault("SEQ510", text)
        if fact.max_length is None or fact.mask not in self.arrays:
            return
        if fact.documents is not None:
            self._documents_within(self.ports[name], self.ports[fact.documents], fact)
            return
        longest = int(self.arrays[fact.mask].sum(1).max())
        if longest > fact.max_length:
            past = f", of which {self.sizes[PAST]} are the past" if self.sizes[PAST] else ""
            text = f"`{name}` has {longest} positions{past}; the learned position table ends at {fact.max_length}"
            raise RuntimeFault("SEQ506", text)

    def _documents_within(self, data: Port, told: Port, fact: Facts) -> None:
        """SEQ506 for a document that is longer than the table of positions, which start anew in each."""
        assert fact.mask
        assert fact.max_length
        ids, real, most = self.arrays[told.name], self.arrays[fact.mask] != 0, fact.max_length
        if self.ports[fact.mask].looks_back and self.sizes[PAST]:
            zeros = np.zeros((len(ids), self.sizes[PAST]), np.int64)
            ids = np.concatenate([zeros if self.past_documents is None else self.past_documents, ids], 1)
        if data.is_sound:  # of its frames and of their positions, which stand in front, there are not as many
            counts = [_positions(told.shape[1], n) for n in real.sum(1)]
            real, most = np.arange(ids.shape[1]) < np.array(counts)[:, None], _positions(told.shape[1], most)
        for row, one in zip(ids, real, strict=True):
            numbers, lengths = np.unique(row[one], return_counts=True)
            if lengths.max(initial=0) > most:
                text = f"document {numbers[lengths.argmax()]} of `{told.name}` has {lengths.max()} positions"
                raise RuntimeFault("SEQ506", f"{text}; the learned position table ends at {most}")

    def _misshaped(self, port: Port, array: Array, wanted: str) -> RuntimeFault:
        text = f"`{port.name}` is {list(array.shape)}; it takes {show(port.shape)}, {wanted}"
        return RuntimeFault("SEQ504", text)


def check_names(signature: Signature, taken: Iterable[str], given: Mapping[str, Any], *, later: bool) -> None:
    """SEQ503 for an unknown name, SEQ502 for a missing input. `taken` are the inputs that the files have."""
    if not isinstance(given, Mapping):
        raise arguments.refused("inputs", "arrays by name", given, code=arguments.RUNNING)
    ports = {port.name: port for port in signature.inputs}
    known = [name for name in ports if name in set(taken)]
    listed = ", ".join(f"`{n}`{' (optional)' if ports[n].optional else ''}" for n in known)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise RuntimeFault("SEQ503", f"there is no input `{name}`; the model has {listed}", hint)
    for name in known:
        port = ports[name]
        if name not in given and not port.optional and not (later and port.once):
            raise RuntimeFault("SEQ502", f"`{name}` is missing; the model has {listed}")


def past_shape(shape: tuple[Size, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an empty past: length 0 in time, the batch of the call."""
    empty = {BATCH: sizes[BATCH], PAST: 0, **dict.fromkeys(windows(shape), 0)}
    return tuple(evaluate(size, empty) for size in shape)


def _positions(size: Size, frames: int) -> int:
    """A length in positions, for one in frames."""
    return evaluate(size, dict.fromkeys(names(size), int(frames)))
