"""The options of generation, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from numbers import Integral, Real
from typing import Any, Literal, Required, TypedDict

import numpy as np
import numpy.typing as npt

from seqspec.diagnostics import RuntimeFault, did_you_mean
from seqspec.runtime.state import Array

_IDS = 1 << 31


class Options(TypedDict, total=False):
    """The options of `generate`: see `Session.generate` for their meaning and `Decoding` for their defaults."""

    max_new_tokens: Required[int]
    min_new_tokens: int
    eos_id: int | Sequence[int] | None
    stop: Sequence[Sequence[int]]
    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float
    num_beams: int
    length_penalty: float
    early_stopping: bool | Literal["never"]
    num_return_sequences: int
    seed: int
    attention_mask: npt.ArrayLike | None
    decoder_start_id: int | None


@dataclass(frozen=True)
class Decoding:
    """Options that were checked together. `eos_ids` and `stop` end a text and are kept in it."""

    max_new_tokens: int
    min_new_tokens: int = 0
    eos_ids: tuple[int, ...] = ()
    stop: tuple[tuple[int, ...], ...] = ()
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    num_return_sequences: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        _check_values(self)
        _check_together(self)

    @classmethod
    def of(cls, given: dict[str, Any]) -> Decoding:
        """From the options of `generate` without those of the prompt; SEQ514 for a wrong one."""
        known = ["eos_id" if f.name == "eos_ids" else f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise refused(f"there is no option `{name}`", did_you_mean(name, known))
        if "max_new_tokens" not in given:
            raise refused("max_new_tokens is missing; it says how many ids there are at most")
        rest = {name: value for name, value in given.items() if name not in ("eos_id", "stop")}
        return cls(**rest, eos_ids=_ids("eos_id", given.get("eos_id")), stop=_texts(given.get("stop")))

    @property
    def fill(self) -> int:
        """Fills up texts that ended before others: the first eos id, or else -1, which is not an id."""
        return self.eos_ids[0] if self.eos_ids else -1

    def named_ids(self) -> Iterator[tuple[str, int]]:
        """Every id among the options, with the option that has it."""
        yield from (("eos_id", one) for one in self.eos_ids)
        yield from (("an id of stop", one) for text in self.stop for one in text)

    def ended(self, made: Array) -> Array:
        """made[..., n], the ids of texts so far -> whether each ends here, [...]."""
        count = made.shape[-1]
        ends: Array = (made[..., -1:] == np.array(self.eos_ids, np.int64)).any(-1)
        for text in self.stop:
            if count >= max(len(text), self.min_new_tokens):
                ends |= (made[..., count - len(text) :] == text).all(-1)
        return np.asarray(ends | (count >= self.max_new_tokens))


def refused(text: str, hint: str | None = None) -> RuntimeFault:
    """The fault of an option."""
    return RuntimeFault("SEQ514", text, hint)


def one_id(name: str, value: Any) -> int:
    """A valid id, of any vocabulary; SEQ514 otherwise."""
    found = whole(name, value, 0)
    if found >= _IDS:
        raise refused(f"{name} is {found}; no vocabulary is so large")
    return found


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`; SEQ514 otherwise."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise refused(f"{name} is {value!r}; it is a whole number")
    if value < least:
        raise refused(f"{name} is {value}; it is at least {least}")
    return int(value)


def _real(name: str, value: Any, low: float, high: float = float("inf"), *, above: bool = False) -> None:
    """A number from `low` to `high`, greater than `low` if `above`; SEQ514 otherwise."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise refused(f"{name} is {value!r}; it is a number")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not (low < number if above else low <= number) or not number <= high or not isfinite(number):
        limits = f"above {low:g}" if above else f"at least {low:g}"
        raise refused(f"{name} is {value}; it is {limits}{f' and at most {high:g}' if isfinite(high) else ''}")


def _check_values(asked: Decoding) -> None:
    """SEQ514 if an option is wrong by itself."""
    for name in ("max_new_tokens", "num_beams", "num_return_sequences"):
        whole(name, getattr(asked, name), 1)
    for name in ("min_new_tokens", "seed"):
        whole(name, getattr(asked, name), 0)
    if asked.seed >= 1 << 64:
        raise refused(f"seed is {asked.seed}; it is below 2^64")
    _real("temperature", asked.temperature, 0)
    _real("repetition_penalty", asked.repetition_penalty, 0, above=True)
    _real("length_penalty", asked.length_penalty, float("-inf"))
    if asked.top_k is not None:
        whole("top_k", asked.top_k, 1)
    for name in ("top_p", "min_p"):
        if getattr(asked, name) is not None:
            _real(name, getattr(asked, name), 0, 1, above=True)
    if not isinstance(asked.early_stopping, bool) and asked.early_stopping != "never":
        raise refused(f"early_stopping is {asked.early_stopping!r}; it is True, False or 'never'")


def _check_together(asked: Decoding) -> None:
    """SEQ514 if an option would have no effect, given the others."""
    if asked.min_new_tokens > asked.max_new_tokens:
        raise refused(f"min_new_tokens is {asked.min_new_tokens}, and max_new_tokens {asked.max_new_tokens}")
    cut = [name for name in ("top_k", "top_p", "min_p") if getattr(asked, name) is not None]
    if cut and not asked.temperature:
        text = f"{cut[0]} chooses among several ids, and greedy decoding takes one"
        raise refused(text, "give a temperature, 1.0 for the model's own probabilities")
    if asked.num_beams > 1:
        if asked.temperature:
            raise refused("temperature draws ids, and a beam search takes the likeliest texts", "leave one of them out")
        if asked.num_return_sequences > asked.num_beams:
            text = f"num_return_sequences is {asked.num_return_sequences}, and num_beams {asked.num_beams}"
            raise refused(text, "a beam search gives at most as many texts as it has beams")
        return
    for name, default in (("length_penalty", 1.0), ("early_stopping", False)):
        if getattr(asked, name) != default:
            raise refused(f"{name} is of beam search", "give num_beams above 1")
    if asked.num_return_sequences > 1 and not asked.temperature:
        raise refused("greedy decoding gives one text", "give a temperature, or num_beams above 1")


def _ids(name: str, value: Any) -> tuple[int, ...]:
    """One id or several."""
    if value is None:
        return ()
    several = isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and getattr(value, "ndim", 1) != 0
    return tuple(one_id(name, one) for one in (value if several else [value]))


def _texts(value: Any) -> tuple[tuple[int, ...], ...]:
    """Rows of ids, none of them empty; SEQ514 otherwise."""
    if value is None:
        return ()
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise refused(f"stop is {value!r}; it is a list of rows of ids")
    rows = list(value)
    for row in rows:
        if isinstance(row, (str, bytes)) or not isinstance(row, Iterable) or not len(list(row)):
            raise refused(f"stop holds {row!r}; it is a list of rows of ids, none of them empty")
    return tuple(tuple(one_id("an id of stop", one) for one in row) for row in rows)
