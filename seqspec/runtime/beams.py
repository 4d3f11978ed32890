"""Beam search: several likely texts at a time (as in transformers, which keeps finished texts apart)."""

from __future__ import annotations

import numpy as np

from seqspec.runtime.options import Decoding
from seqspec.runtime.prompt import Prompt
from seqspec.runtime.sampling import Adjustment, largest
from seqspec.runtime.state import Array


class Beams:
    """score(text) = Σ log p(id | ids before it) / length^length_penalty, where the length includes the end.

    Each step keeps the `num_beams` likeliest unfinished texts, and the `num_beams` best finished ones. A row is done
    when it has that many finished texts and, with

    early_stopping=True     no further condition
    early_stopping=False    the likeliest unfinished text, scored at its present length, is no better than the worst
    early_stopping="never"  the same, scored at the length that would be best for it
    """

    def __init__(self, asked: Decoding, prompt: Prompt) -> None:
        self.asked, self.width, rows = asked, asked.num_beams, len(prompt.ids)
        self.adjust = Adjustment(asked, prompt.ids)
        # in the worst case, all of a beam's likeliest ids but one end its text
        self.candidates = self.width * (1 + max(1, len(asked.eos_ids) + len(asked.stop)))
        self.scores, self.made = np.zeros((rows, 1)), np.zeros((rows, 1, 0), np.int64)
        self.ended_scores = np.full((rows, self.width), -np.inf)
        self.ended = np.zeros((rows, self.width, 0), np.int64)  # -1 after the end
        self.open = np.ones(rows, bool)

    @property
    def done(self) -> bool:
        return not self.open.any()

    def choose(self, logits: Array) -> tuple[Array, Array]:
        rows, running = self.scores.shape
        vocabulary = logits.shape[-1]
        scores = self.adjust(_log_softmax(logits.astype(np.float64)))
        scores = scores.reshape(rows, running, vocabulary) + self.scores[..., None]
        best, places = largest(scores.reshape(rows, -1), self.candidates)
        parents, ids = np.divmod(places, vocabulary)
        made = np.concatenate([np.take_along_axis(self.made, parents[..., None], 1), ids[..., None]], -1)
        ends = self.asked.ended(made)
        self._end(made, np.where(ends, best, -np.inf)[:, : self.width])
        kept = np.argsort(np.where(ends, np.inf, -best), -1, kind="stable")[:, : self.width]
        self.scores = np.take_along_axis(np.where(ends, -np.inf, best), kept, -1)
        self.made = np.take_along_axis(made, kept[..., None], 1)
        self._close()
        origins = np.take_along_axis(parents, kept, -1) + running * np.arange(rows)[:, None]
        chosen = self.made[..., -1].reshape(-1)
        self.adjust.follow(chosen, origins.reshape(-1))
        return chosen, origins.reshape(-1)

    def texts(self) -> Array:
        found = self.ended[:, : self.asked.num_return_sequences]
        return found[..., : int((found >= 0).sum(-1).max())]

    def _end(self, made: Array, scores: Array) -> None:
        """Keeps the best finished texts, with those that end now: scores[B, k] of the first k of made[B, C, n]."""
        length = made.shape[-1]
        new = np.where(self.open[:, None], scores / length**self.asked.length_penalty, -np.inf)
        merged = np.concatenate([self.ended_scores, new], 1)
        behind = np.full((*self.ended.shape[:2], 1), -1)
        texts = np.concatenate([np.concatenate([self.ended, behind], -1), made[:, : self.width]], 1)
        order = np.argsort(-merged, -1, kind="stable")[:, : self.width]
        self.ended_scores = np.take_along_axis(merged, order, -1)
        self.ended = np.take_along_axis(texts, order[..., None], 1)
        self.ended[self.ended_scores == -np.inf] = -1

    def _close(self) -> None:
        """Closes the rows in which no better text can follow."""
        asked, length = self.asked, self.made.shape[-1]
        worst = self.ended_scores.min(-1)  # -∞ while fewer have ended than there are beams
        if asked.early_stopping is True:
            self.open &= worst == -np.inf
        longest = asked.early_stopping == "never" and asked.length_penalty > 0
        self.open &= self.scores[:, 0] / (asked.max_new_tokens if longest else length) ** asked.length_penalty > worst


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
