"""The works that are timed: batches of token ids or features, with or without a past, and each row's real length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

WORDS = 8192
RAGGED = (128, 17, 90, 64, 128, 33, 101, 77)


@dataclass(frozen=True)
class Work:
    """A batch for `model`: `lengths` of each row's `time` positions are real, after `past` cached ones."""

    name: str
    model: str
    lengths: tuple[int, ...]
    time: int
    past: int = 0
    greedy: bool = False

    @property
    def mask(self) -> np.ndarray:
        """[B, P + T]"""
        return (np.arange(self.past + self.time) < self.past + np.array(self.lengths)[:, None]).astype(np.int64)

    @property
    def ids(self) -> np.ndarray:
        """[B, T]"""
        return np.random.default_rng(0).integers(4, WORDS, (len(self.lengths), self.time))

    @property
    def inputs(self) -> dict[str, Any]:
        """By the names that the emitted module has; a mask only where something is padded, as its users would."""
        padded = {} if self.mask.all() else {"attention_mask": self.mask}
        if self.model == "bahdanau":
            return {"input_ids": self.ids, "decoder_input_ids": self.ids[:, ::-1].copy()}
        if self.model in ("decoder", "encoder", "sentences"):
            return {"input_ids": self.ids, **padded}
        shape = (len(self.lengths), self.time, 256)
        return {"features": np.random.default_rng(0).standard_normal(shape, np.float32), **padded}


def _ragged(count: int, time: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(3).integers(8, time + 1, count).tolist())


WORKS = (
    Work("prefill 1x512", "decoder", (512,), 512),
    Work("prefill 1x1536", "decoder", (1536,), 1536),
    Work("prefill 1x2048", "decoder", (2048,), 2048),
    Work("prefill 8x128 padded", "decoder", RAGGED, 128),
    Work("decode past 512", "decoder", (1,), 1, 512),
    Work("decode past 1900", "decoder", (1,), 1, 1900),
    Work("decode past 2047", "decoder", (1,), 1, 2047),
    Work("decode 8 past 256", "decoder", (1,) * 8, 1, 256),
    Work("encoder 1x512 quarter full", "encoder", (128,), 512),
    Work("encoder 1x512", "encoder", (512,), 512),
    Work("sentences 1x512 quarter full", "sentences", (128,), 512),
    Work("sentences 8x128 padded", "sentences", RAGGED, 128),
    Work("encoder 8x128 padded", "encoder", RAGGED, 128),
    *(Work(f"{kind} 16x256", kind, (256,) * 16, 256) for kind in ("lstm", "gru", "rnn")),
    *(Work(f"{kind} 16x256 ragged", kind, _ragged(16, 256), 256) for kind in ("lstm", "gru", "rnn")),
    Work("bahdanau greedy 16x64", "bahdanau", (64,) * 16, 64, greedy=True),
    Work("bahdanau greedy 1x64", "bahdanau", (64,), 64, greedy=True),
    Work("bahdanau forced 16x64", "bahdanau", (64,) * 16, 64),
    Work("bahdanau forced 1x64", "bahdanau", (64,), 64),
)
