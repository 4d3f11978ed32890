"""logits[B, V] -> the next ids [B]: the largest, or one drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqspec.diagnostics import RuntimeFault
from seqspec.runtime.state import Array


def _outside(text: str) -> RuntimeFault:
    return RuntimeFault("SEQ514", text)


@dataclass(frozen=True)
class Sampling:
    """How ids are chosen. `temperature` 0 is greedy, and takes the first of equal largest logits.

    Otherwise an id is drawn from softmax(logits / temperature), cut first to the `top_k` likeliest, then to the
    smallest set of likeliest ids whose probabilities sum to at least `top_p`.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise _outside(f"temperature is {self.temperature}; it is 0 for greedy, or above")
        if self.top_k is not None and self.top_k < 1:
            raise _outside(f"top_k is {self.top_k}; at least one id must be left")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise _outside(f"top_p is {self.top_p}; it is above 0 and at most 1")
        if not self.temperature and (self.top_k is not None or self.top_p is not None):
            raise _outside("top_k and top_p choose among several ids; greedy decoding takes one: give a temperature")

    def choose(self, logits: Array, uniform: Array) -> Array:
        """logits[B, V] and a number in [0, 1) for each row -> ids[B], in float64 whatever the logits are."""
        if not self.temperature:
            return np.asarray(np.argmax(logits, -1))
        order = np.argsort(-logits, -1, kind="stable")[:, : self.top_k]
        scores = np.take_along_axis(logits, order, -1).astype(np.float64) / self.temperature
        weights = np.exp(scores - scores[:, :1])
        weights /= weights.sum(-1, keepdims=True)
        if self.top_p is not None:
            # the probabilities before an id say whether the set is complete without it; the likeliest always stays
            weights[np.cumsum(weights, -1) - weights >= self.top_p] = 0
        reached = np.cumsum(weights, -1)
        place = (reached <= uniform[:, None] * reached[:, -1:]).sum(-1)
        return np.asarray(np.take_along_axis(order, place[:, None], -1)[:, 0])


class Draws:
    """A stream of numbers for each row, so that a row's ids do not depend on what else is in the batch."""

    def __init__(self, seed: int, rows: int) -> None:
        self._rows = [np.random.Generator(np.random.Philox(key=[seed, row])) for row in range(rows)]

    def next(self) -> Array:
        """A number in [0, 1) for each row."""
        return np.array([row.random() for row in self._rows])
