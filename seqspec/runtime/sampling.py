"""scores[R, V] -> the next ids [R], greedy or sampled, and the transformations of scores before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from seqspec.runtime.options import Decoding
from seqspec.runtime.state import Array


@dataclass(frozen=True)
class Sampling:
    """How ids are chosen. `temperature` 0 is greedy, and takes the first of equal largest scores.

    Otherwise an id is drawn from softmax(scores / temperature), cut first to the `top_k` likeliest, then to the
    smallest set of likeliest ids whose probabilities sum to at least `top_p`, then to those at least `min_p` times as
    likely as the likeliest.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def choose(self, scores: Array, draw: Callable[[], Array]) -> Array:
        """scores[R, V] -> ids[R]. `draw` gives a number in [0, 1) for each row, if ids are drawn."""
        if not self.temperature:
            return np.asarray(np.argmax(scores, -1))
        weights, order = self.weights(scores)
        reached = np.cumsum(weights, -1)
        place = (reached <= draw()[:, None] * reached[:, -1:]).sum(-1)
        return np.asarray(np.take_along_axis(order, place[:, None], -1)[:, 0])

    def weights(self, scores: Array) -> tuple[Array, Array]:
        """Unnormalized probabilities and their ids, both [R, K], the likeliest first."""
        largest_first, order = largest(scores, self.top_k or scores.shape[-1])
        with np.errstate(over="ignore"):  # with a temperature near 0, less likely ids have the weight 0
            weights = np.exp((largest_first - largest_first[:, :1]) / self.temperature)
        weights /= weights.sum(-1, keepdims=True)
        if self.top_p is not None:
            # the sum of the probabilities before an id tells if the set is complete without it; the likeliest stays
            weights[np.cumsum(weights, -1) - weights >= self.top_p] = 0
        if self.min_p is not None:
            weights[weights < self.min_p * weights[:, :1]] = 0
        return weights, order


class Draws:
    """A stream of random numbers for each row, so that a row's ids do not depend on the rest of the batch.

    Of `several` texts for a row the first has the row's own stream.
    """

    def __init__(self, seed: int, rows: int, several: int = 1) -> None:
        streams = ((row, text) for row in range(rows) for text in range(several))
        self._rows = [np.random.Generator(np.random.Philox(key=[seed, r], counter=[0, 0, 0, t])) for r, t in streams]

    def next(self) -> Array:
        """A number in [0, 1) for each row."""
        return np.array([row.random() for row in self._rows])


class Adjustment:
    """scores[R, V] -> scores[R, V]: repeated ids are less likely, and too early ends are impossible.

    `repetition_penalty` p divides the positive scores of ids in the prompt or the text by p and multiplies the negative
    ones (Keskar et al. 2019); before `min_new_tokens` an end has the score -∞.
    """

    def __init__(self, asked: Decoding, prompts: list[Array]) -> None:
        self.asked, self.prompts = asked, prompts
        self.seen: Array | None = None
        self.count = 0

    def __call__(self, scores: Array) -> Array:
        if self.asked.repetition_penalty != 1:
            penalty, seen = self.asked.repetition_penalty, self._seen(scores.shape[-1])
            scores = scores.astype(np.float64)
            scores = np.where(seen, np.where(scores < 0, scores * penalty, scores / penalty), scores)
        if self.asked.eos_ids and self.count < self.asked.min_new_tokens:
            scores = scores.copy()
            scores[:, [n for n in self.asked.eos_ids if n < scores.shape[-1]]] = -np.inf
        return scores

    def follow(self, ids: Array, origins: Array) -> None:
        """The rows of the next call are these rows of the last one, each with one of these ids appended."""
        self.count += 1
        if self.seen is not None:
            self.seen = self.seen[origins]
            self.seen[np.flatnonzero(ids >= 0), ids[ids >= 0]] = True

    def _seen(self, vocabulary: int) -> Array:
        """[R, V], whether an id was there before."""
        if self.seen is None:
            self.seen = np.zeros((len(self.prompts), vocabulary), bool)
            for row, prompt in zip(self.seen, self.prompts, strict=True):
                row[prompt] = True
        return self.seen


def largest(scores: Array, count: int) -> tuple[Array, Array]:
    """scores[R, N] -> the `count` largest of each row, the first of equal ones first, and their indices: [R, count].

    Rows with fewer places have -∞ at place 0 behind them.
    """
    rows, total = scores.shape
    found, places = np.full((rows, count), -np.inf), np.zeros((rows, count), np.int64)
    for n, row in enumerate(scores):
        # sorts only what reaches the bound, since vocabularies are large
        reach = np.flatnonzero(row >= np.partition(row, total - count)[total - count]) if count < total else slice(None)
        at = np.arange(total)[reach]
        at = at[np.argsort(-row[at], kind="stable")][:count]
        found[n, : len(at)], places[n, : len(at)] = row[at], at
    return found, places
