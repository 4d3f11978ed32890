"""Generation: one search that drives a model of either backend step by step. It is not part of any graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack

import numpy as np

from seqspec.runtime.beams import Beams
from seqspec.runtime.options import Decoding, Options, refused
from seqspec.runtime.prompt import Ids, Prompt, check, is_single, read
from seqspec.runtime.search import Lines, Search, steps
from seqspec.runtime.state import Array
from seqspec.runtime.steppers import Stepper, stepper

_OF_PROMPT = ("attention_mask", "decoder_start_id")


def generate(model: Any, ids: Ids, **options: Unpack[Options]) -> Array:
    """ids[B, T] -> new ids [B, N], N ≤ `max_new_tokens`; ids[T] -> [N]; [B, n, N] with `num_return_sequences` n > 1.

    `model` is a Session or a module of `to_torch`; both give the same ids. Rows may have different lengths. The options
    are those of `Session.generate`. RuntimeFault for a model that cannot generate (SEQ511), or for wrong options
    (SEQ514, SEQ517).
    """
    stepping, prompt, asked = _begun(model, ids, options)
    search: Search = Beams(asked, prompt) if asked.num_beams > 1 else Lines(asked, prompt)
    for _ in steps(stepping, prompt, search, prompt.length + asked.max_new_tokens):
        pass
    texts = search.texts()
    texts = np.where(texts < 0, asked.fill, texts)
    made = texts if asked.num_return_sequences > 1 else texts[:, 0]
    return np.asarray(made[0] if is_single(ids) else made)


def stream(model: Any, ids: Ids, **options: Unpack[Options]) -> Iterator[Array]:
    """The ids of `generate` as they are made, one position [B], or [B, n], of the whole batch at a time."""
    stepping, prompt, asked = _begun(model, ids, options)
    if asked.num_beams > 1:
        raise refused("a beam search knows its text when it is over", "call `generate`")
    columns = steps(stepping, prompt, Lines(asked, prompt), prompt.length + asked.max_new_tokens)
    shape = (len(prompt.ids), asked.num_return_sequences)[: 1 + (asked.num_return_sequences > 1)]
    return (np.where(column < 0, asked.fill, column).reshape(shape) for column in columns)


def _begun(model: Any, ids: Ids, options: Any) -> tuple[Stepper, Prompt, Decoding]:
    """The stepper, the prompt and the options, all checked."""
    asked = Decoding.of({name: value for name, value in options.items() if name not in _OF_PROMPT})
    stepping = stepper(model)
    mask, start = (options.get(name) for name in _OF_PROMPT)
    prompt = read(ids, mask, start, two_stacks=stepping.two_stacks)
    check(prompt, stepping.facts, asked)
    return stepping, prompt, asked
