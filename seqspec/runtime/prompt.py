"""The prompt of a generation: the inputs of its first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from seqspec.diagnostics import RuntimeFault
from seqspec.runtime.facts import Facts
from seqspec.runtime.options import Decoding, one_id, refused
from seqspec.runtime.state import Array

Ids = npt.ArrayLike | Sequence[Sequence[int]] | Mapping[str, npt.ArrayLike]
START_ID = "give `decoder_start_id`, on the command line `--decoder-start-id`: the id of the token that opens a text"


@dataclass(frozen=True)
class Prompt:
    """`inputs` by name; `ids` are each row's real ids that its texts continue. The model reads them under `name`."""

    inputs: dict[str, Array]
    ids: list[Array]
    name: str
    mask_name: str

    @property
    def length(self) -> int:
        """The number of positions that the model sees: those of the longest row."""
        return int(self.inputs[self.name].shape[1])


def read(ids: Any, mask: Any, start: Any, *, two_stacks: bool) -> Prompt:
    """A Prompt from rows of ids, which may differ in length. With two stacks they are the encoder's, or are its inputs
    by name, and a text begins with `start`. SEQ502, 504, 505, 511, 513 or 514 for anything else."""
    if not two_stacks:
        if start is not None:
            raise refused("decoder_start_id is for a decoder behind an encoder, and this model is one stack")
        if isinstance(ids, Mapping):
            raise RuntimeFault("SEQ511", "inputs by name are an encoder's, and this model has none", "give rows of ids")
        rows = _rows(ids, mask)
        table, real = _table(rows, left=True)
        masks = {} if real is None and mask is None else {"attention_mask": _mask(table, real)}
        return Prompt({"input_ids": table} | masks, rows, "input_ids", "attention_mask")
    if start is None:
        raise RuntimeFault("SEQ511", "the model's decoder needs an id to begin with", START_ID)
    first = one_id("decoder_start_id", start)
    inputs = _of_encoder(ids, mask)
    opened = np.full((len(next(iter(inputs.values()))), 1), first, np.int64)
    names = ("decoder_input_ids", "decoder_attention_mask")
    return Prompt(inputs | {names[0]: opened}, list(opened), *names)


def check(prompt: Prompt, facts: Mapping[str, Facts], asked: Decoding) -> None:
    """SEQ510 for ids outside their table, SEQ506 for too few positions for all new ids, before anything is computed."""
    for name, array in prompt.inputs.items():
        limit = facts.get(name, Facts()).ids
        if limit is not None and array.size and (array.min() < 0 or array.max() >= limit):
            row, column = map(int, np.argwhere((array < 0) | (array >= limit))[0])
            text = f"`{name}`[{row}, {column}] is {array[row, column]}; ids run from 0 to {limit - 1}"
            raise RuntimeFault("SEQ510", text)
    known, length, count = facts.get(prompt.name, Facts()), prompt.length, asked.max_new_tokens
    for name, one in asked.named_ids():
        if known.ids is not None and one >= known.ids:
            raise RuntimeFault("SEQ510", f"{name} is {one}; ids run from 0 to {known.ids - 1}")
    longest = known.max_length
    if longest is None:
        return
    if length > longest:
        text = f"`{prompt.name}` has {length} positions; the learned position table ends at {longest}"
        raise RuntimeFault("SEQ506", text)
    # the last id is returned but never read, so it needs no position
    if length + count - 1 > longest:
        text = f"max_new_tokens is {count}, and the learned position table ends at {longest}"
        behind = "one id" if length == 1 else f"{length} ids"
        raise RuntimeFault("SEQ506", text, f"at most {longest - length + 1} after {behind}")


def is_single(ids: Any) -> bool:
    """Whether ids are a single row."""
    if isinstance(ids, Mapping) or not len(ids):
        return False
    return bool(ids[0].ndim == 0) if hasattr(ids[0], "ndim") else not hasattr(ids[0], "__len__")


def _of_encoder(ids: Any, mask: Any) -> dict[str, Array]:
    if not isinstance(ids, Mapping):
        table, real = _table(_rows(ids, mask), left=False)
        return {"input_ids": table} | ({} if real is None and mask is None else {"attention_mask": _mask(table, real)})
    if mask is not None:
        raise refused("attention_mask goes with rows of ids; these are inputs by name", "put it beside them")
    inputs = {str(name): _array(f"`{name}`", value) for name, value in ids.items()}
    if not inputs:
        raise RuntimeFault("SEQ502", "there are no inputs; give the encoder's by name, or rows of ids")
    for name, array in inputs.items():
        if array.ndim == 0:
            raise RuntimeFault("SEQ504", f"`{name}` is one number; it takes a row for every text")
    return inputs


def _array(what: str, value: Any) -> Array:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged, or a tensor with a gradient
        raise RuntimeFault("SEQ505", f"{what} is no array: {error}") from None


def _rows(ids: Any, mask: Any) -> list[Array]:
    """The real ids of each row."""
    listed = hasattr(ids, "__len__") and hasattr(ids, "__getitem__") and getattr(ids, "ndim", 1) > 0
    if not listed or isinstance(ids, (str, bytes)):
        raise _no_rows(f"of type {type(ids).__name__}")
    rows = [_array("a row of ids", row) for row in ([ids] if is_single(ids) else ids)]
    if mask is not None:
        real = np.atleast_2d(_array("`attention_mask`", mask))
        if [row.shape for row in rows] != [row.shape for row in real]:
            shapes = [len(rows), *rows[0].shape] if rows else []
            raise RuntimeFault("SEQ504", f"`attention_mask` is {list(real.shape)}, and the ids are {shapes}")
        if real.dtype.kind not in "iub":
            raise RuntimeFault("SEQ505", f"`attention_mask` is {real.dtype}; it takes integers or booleans")
        rows = [row[keep != 0] for row, keep in zip(rows, real, strict=True)]
    for row in rows:
        if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
            raise _no_rows(f"{row.dtype}{list(row.shape)}")
    if not rows or not all(row.size for row in rows):
        raise RuntimeFault("SEQ513", "a row of ids is empty; every row needs one token at least")
    return rows


def _no_rows(what: str) -> RuntimeFault:
    return RuntimeFault("SEQ505", f"ids are rows of integers, not {what}", "for example [[5, 9, 13], [7]]")


def _table(rows: list[Array], *, left: bool) -> tuple[Array, Array | None]:
    """Rows as one padded array [B, T], and the mask of real ids; None if all are.

    With padding on the left, the last column has every row's last token, which the first new id follows.
    """
    longest = max(row.size for row in rows)
    table, real = np.zeros((len(rows), longest), np.int64), np.zeros((len(rows), longest), bool)
    for n, row in enumerate(rows):
        place = slice(longest - row.size, None) if left else slice(0, row.size)
        table[n, place], real[n, place] = row, True
    return table, None if real.all() else real


def _mask(table: Array, real: Array | None) -> Array:
    return np.ones_like(table) if real is None else real.astype(np.int64)
