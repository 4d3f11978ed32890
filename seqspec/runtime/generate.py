"""Generation: one driver that steps either backend. It is never in a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from seqspec.diagnostics import RuntimeFault
from seqspec.runtime.sampling import Draws, Sampling
from seqspec.runtime.state import Array
from seqspec.runtime.steppers import START_ID, Stepper, stepper

Ids = npt.ArrayLike | Sequence[Sequence[int]] | Mapping[str, npt.ArrayLike]


def generate(model: Any, ids: Ids, *, max_new_tokens: int, eos_id: int | None = None, **options: Any) -> Array:
    """ids[B, T] -> new ids [B, N], N ≤ `max_new_tokens`; ids[T] -> [N]. `model` is a Session or a module.

    Rows of different lengths, or a padded array with its `attention_mask`, are padded on the left. A row ends with
    `eos_id`, which is kept and fills the row up while others go on. For the other options see `stream`.
    """
    columns = list(stream(model, ids, max_new_tokens=max_new_tokens, eos_id=eos_id, **options))
    made = np.stack(columns, 1)
    return made[0] if _is_single(ids) else made


def stream(
    model: Any,
    ids: Ids,
    *,
    max_new_tokens: int,
    eos_id: int | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    attention_mask: npt.ArrayLike | None = None,
    decoder_start_id: int | None = None,
) -> Iterator[Array]:
    """New ids, one position [B] of the whole batch at a time; the same ids from either backend.

    `temperature` 0 is greedy; otherwise `top_k`, `top_p` and `seed` say how ids are drawn. A model of two stacks needs
    `decoder_start_id`: `ids` are then the encoder's, or a mapping of its inputs by name.
    """
    if max_new_tokens < 1:
        raise RuntimeFault("SEQ514", f"max_new_tokens is {max_new_tokens}; it is at least 1")
    sampling = Sampling(temperature, top_k, top_p)
    inputs = _prompt(ids, attention_mask, decoder_start_id)
    prompt = inputs["decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"]
    length = int(np.shape(prompt)[1])
    stepping = stepper(model, length + max_new_tokens)
    # the last id is given, and not read: it needs no position
    if stepping.max_length is not None and length <= stepping.max_length < length + max_new_tokens - 1:
        text = f"max_new_tokens is {max_new_tokens}, and the learned position table ends at {stepping.max_length}"
        raise RuntimeFault("SEQ506", text, f"at most {stepping.max_length - length + 1} after {_count(length)}")
    return _steps(stepping, inputs, sampling, seed, max_new_tokens, eos_id)


def _steps(
    model: Stepper, inputs: dict[str, Array], sampling: Sampling, seed: int, count: int, eos_id: int | None
) -> Iterator[Array]:
    prefix = "decoder_" if "decoder_input_ids" in inputs else ""
    rows = len(inputs[f"{prefix}input_ids"])
    draws = Draws(seed, rows)
    done = np.zeros(rows, bool)
    state = None
    with model.running():
        for number in range(count):
            logits, state = model.step(inputs, state)
            chosen = sampling.choose(logits[:, -1], draws.next())
            if eos_id is not None:
                chosen = np.where(done, eos_id, chosen)
                done |= chosen == eos_id
            yield chosen
            if done.all() or number == count - 1:
                return
            # what was generated is real, also where it is the id of padding
            real = np.ones((rows, 1), np.int64)
            inputs = {f"{prefix}input_ids": chosen[:, None], f"{prefix}attention_mask": real}


def _prompt(ids: Ids, mask: npt.ArrayLike | None, start: int | None) -> dict[str, Array]:
    """The inputs of the first step."""
    if isinstance(ids, Mapping):
        if start is None:
            text = "inputs by name are an encoder's, and the decoder needs an id to begin with"
            raise RuntimeFault("SEQ511", text, START_ID)
        given = {name: np.asarray(value) for name, value in ids.items()}
        first = next(iter(given.values()))
        return given | {"decoder_input_ids": np.full((len(first), 1), start, np.int64)}
    table, real = _table(ids, mask, left=start is None)
    inputs = {"input_ids": table} | ({} if real is None else {"attention_mask": real.astype(np.int64)})
    if start is not None:
        inputs["decoder_input_ids"] = np.full((len(table), 1), start, np.int64)
    return inputs


def _table(ids: Any, mask: npt.ArrayLike | None, *, left: bool) -> tuple[Array, Array | None]:
    """Rows as one array; and which of it is real, where some of it is padding or a mask was given.

    On the left the last column is every row's last token, from which it goes on.
    """
    rows = [np.asarray(row) for row in ([ids] if _is_single(ids) else ids)]
    if mask is not None:
        real = np.atleast_2d(np.asarray(mask)).astype(bool)
        if [row.shape for row in rows] != [row.shape for row in real]:
            shapes = [len(rows), *rows[0].shape] if rows else []
            raise RuntimeFault("SEQ504", f"`attention_mask` is {list(real.shape)}, and the ids are {shapes}")
        rows = [row[keep] for row, keep in zip(rows, real, strict=True)]
    for row in rows:
        if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
            raise RuntimeFault("SEQ505", f"ids are rows of integers, not {row.dtype}{list(row.shape)}")
    if not rows or not all(row.size for row in rows):
        raise RuntimeFault("SEQ513", "a row of ids is empty; every row needs one token at least")
    longest = max(row.size for row in rows)
    table, padding = np.zeros((len(rows), longest), np.int64), np.zeros((len(rows), longest), bool)
    for n, row in enumerate(rows):
        place = slice(longest - row.size, None) if left else slice(0, row.size)
        table[n, place], padding[n, place] = row, True
    return table, None if mask is None and padding.all() else padding


def _count(length: int) -> str:
    return "one id" if length == 1 else f"{length} ids"


def _is_single(ids: Any) -> bool:
    """Whether ids are one row, not rows."""
    if isinstance(ids, Mapping):
        return False
    return np.ndim(ids[0]) == 0 if len(ids) else False
