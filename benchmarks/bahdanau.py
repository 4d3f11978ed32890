"""An encoder-decoder with Bahdanau attention as people write it in PyTorch: each step attends, updates, gives logits.

The other side of `specs.BAHDANAU`, with the same weights. Nothing here comes from the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from benchmarks.specs import VOCABULARY, WIDTH


class Encoder(nn.Module):
    """ids[B, S] -> memory[B, S, H]"""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        memory: Tensor = self.gru(self.embedding(ids))[0]
        return memory


class Decoder(nn.Module):
    """One step over a memory[B, S, H] whose keys[B, S, H] are computed once."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.score = nn.Linear(WIDTH, 1, bias=False)
        self.cell = nn.GRUCell(2 * WIDTH, WIDTH)
        self.head = nn.Linear(2 * WIDTH, VOCABULARY, bias=False)

    def step(self, token: Tensor, h: Tensor, memory: Tensor, keys: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """token[B], h[B, H] -> logits[B, V], h[B, H]"""
        scores = self.score(torch.tanh(keys + self.query(h)[:, None])).squeeze(-1)
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        context = (weights[:, None] @ memory)[:, 0]
        h = self.cell(torch.cat((self.embedding(token), context), -1), h)
        return self.head(torch.cat((h, context), -1)), h


class Translator(nn.Module):
    """Encodes once, then decodes step by step: a given text (`forced`), or the likeliest one (`greedy`)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forced(self, ids: Tensor, given: Tensor) -> Tensor:
        """ids[B, S], given[B, T] -> logits[B, T, V]"""
        memory, keys, mask, h = self._begun(ids)
        logits = []
        for token in given.unbind(1):
            step, h = self.decoder.step(token, h, memory, keys, mask)
            logits.append(step)
        return torch.stack(logits, 1)

    def greedy(self, ids: Tensor, start: int, count: int) -> Tensor:
        """ids[B, S] -> new ids [B, count]"""
        memory, keys, mask, h = self._begun(ids)
        token, made = ids.new_full((len(ids),), start), []
        for _ in range(count):
            step, h = self.decoder.step(token, h, memory, keys, mask)
            token = step.argmax(-1)
            made.append(token)
        return torch.stack(made, 1)

    def _begun(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        memory = self.encoder(ids)
        return memory, self.decoder.key(memory), ids != 0, memory.new_zeros(len(ids), WIDTH)


_NAMES = {
    "encoder.embedding.": "encoder.embed_tokens.",
    "encoder.gru.": "encoder.layers.0.gru.",
    "decoder.embedding.": "decoder.embed_tokens.",
    "decoder.key.": "decoder.layers.0.key_proj.",
    "decoder.query.": "decoder.layers.0.step.query_proj.",
    "decoder.score.": "decoder.layers.0.step.score_proj.",
    "decoder.cell.": "decoder.layers.0.step.gru.",
    "decoder.head.": "head.",
}
"""Our names for the parts of a Translator."""


def translator(weights: Mapping[str, Tensor]) -> Translator:
    """A Translator with the weights of the module that `specs.BAHDANAU` becomes."""
    model = Translator()
    ours = {n: next(n.replace(t, o) for t, o in _NAMES.items() if n.startswith(t)) for n in model.state_dict()}
    model.load_state_dict({theirs: weights[name] for theirs, name in ours.items()})
    return model.eval()
