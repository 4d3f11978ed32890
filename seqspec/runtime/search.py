"""The loop that all searches share: step the model, choose ids, continue from these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from seqspec.runtime.options import Decoding
from seqspec.runtime.prompt import Prompt
from seqspec.runtime.sampling import Adjustment, Draws, Sampling
from seqspec.runtime.state import Array
from seqspec.runtime.steppers import Stepper


class Search(Protocol):
    """Chooses the ids of `width` texts for every row of the prompt.

    `choose` takes logits[R, V] in float32 or float64, where R is B on the first step and B · width afterwards. It
    returns ids[B · width], -1 after the end of a text, and which of the R rows each id continues. `texts` are the texts
    found, [B, n, N].
    """

    width: int

    @property
    def done(self) -> bool: ...

    def choose(self, logits: Array) -> tuple[Array, Array]: ...

    def texts(self) -> Array: ...


class Lines:
    """Greedy search or sampling: every text is continued by itself."""

    def __init__(self, asked: Decoding, prompt: Prompt) -> None:
        self.asked, self.width, self.rows = asked, asked.num_return_sequences, len(prompt.ids)
        self.sampling = Sampling(asked.temperature, asked.top_k, asked.top_p, asked.min_p)
        self.draws = Draws(asked.seed, self.rows, self.width)
        self.adjust = Adjustment(asked, prompt.ids)
        self.made = np.zeros((self.rows * self.width, 0), np.int64)
        self.ended = np.zeros(self.rows * self.width, bool)

    @property
    def done(self) -> bool:
        return bool(self.ended.all())

    def choose(self, logits: Array) -> tuple[Array, Array]:
        texts = self.rows * self.width
        rows = np.arange(len(logits)).repeat(texts // len(logits))  # on the first step, one for all texts of a prompt
        scores = self.adjust(logits)
        scores = scores if len(scores) == texts else scores[rows]
        ids = np.where(self.ended, -1, self.sampling.choose(scores, self.draws.next))
        self.adjust.follow(ids, rows)
        self.made = np.concatenate([self.made, ids[:, None]], 1)
        self.ended |= self.asked.ended(self.made)
        return ids, rows

    def texts(self) -> Array:
        return self.made.reshape(self.rows, self.width, -1)


def steps(model: Stepper, prompt: Prompt, search: Search, room: int) -> Iterator[Array]:
    """The ids chosen at each step, [B · width], in at most `room` positions."""
    inputs, state, first = prompt.inputs, None, True
    with model.running(room):
        while True:
            logits, state = model.step(inputs, state)
            ids, rows = search.choose(_wide(logits[:, -1]))
            yield ids
            if search.done:
                return
            if first and search.width > 1:
                state = model.spread(state, search.width)
            elif not first and (rows != np.arange(len(rows))).any():
                state = model.reorder(state, rows)
            first = False
            # generated ids are real, even the padding id; after its end a text may read anything
            real = np.ones((len(ids), 1), np.int64)
            inputs = {prompt.name: np.maximum(ids, 0)[:, None], prompt.mask_name: real}


def _wide(logits: Array) -> Array:
    """In float32 at least, which NumPy sorts. A larger vocabulary is too large to be copied without need."""
    return logits if logits.dtype.itemsize >= 4 else logits.astype(np.float32)
