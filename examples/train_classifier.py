"""Do the brackets balance? A bidirectional LSTM with one answer for every sequence.

    python examples/train_classifier.py

`labels` are the classes [B]; lengths differ, and padding is told by `pad_id`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
import torch
from torch import Tensor, nn
from training import arguments, padded, save, train

import seqspec

PAD, BRACKETS = 0, "()[]"
SPEC = f"""
seqspec: 1
name: brackets
encoder:
  input: {{kind: tokens, vocab_size: {1 + len(BRACKETS)}, d_model: 16, pad_id: {PAD}}}
  layers: [{{kind: lstm, hidden_size: 32, bidirectional: true}}]
head: {{kind: classifier, classes: 2, pool: max}}
"""


def balanced(random: Random, pairs: int) -> str:
    """A balanced text of brackets."""
    if pairs == 0:
        return ""
    inside = random.randrange(pairs)
    left, right = random.choice(["()", "[]"])
    return left + balanced(random, inside) + right + balanced(random, pairs - 1 - inside)


def broken(random: Random, text: str) -> str:
    """The same with one bracket turned into another, which never balances."""
    place = random.randrange(len(text))
    return text[:place] + random.choice(BRACKETS.replace(text[place], "")) + text[place + 1 :]


def examples(random: Random, rows: int) -> tuple[list[list[int]], list[int]]:
    """Texts as ids, every second one balanced, and 1 for those."""
    texts = [balanced(random, random.randint(1, 8)) for _ in range(rows)]
    texts = [broken(random, text) if n % 2 else text for n, text in enumerate(texts)]
    return [[1 + BRACKETS.index(c) for c in text] for text in texts], [1 - n % 2 for n in range(rows)]


def losses(model: nn.Module, seed: int, rows: int = 64) -> Iterator[Tensor]:
    random = Random(seed)
    while True:
        rows_of_ids, classes = examples(random, rows)
        yield model(padded(rows_of_ids), labels=torch.tensor(classes)).loss


def accuracy(session: seqspec.Session, seed: int, rows: int = 500) -> float:
    """The fraction of new texts that the compiled model classifies correctly."""
    texts, classes = examples(Random(seed), rows)
    logits = session.run({"input_ids": padded(texts).numpy()})["logits"]
    return float(np.mean(logits.argmax(1) == classes))


def main(argv: Sequence[str] | None = None) -> list[float]:
    args = arguments(__doc__, argv, steps=500)
    model = seqspec.to_torch(SPEC, seed=args.seed)
    history = train(model, losses(model, args.seed), args.steps, rate=0.01)
    session = save(model, SPEC, args.output / "brackets")
    print(f"of 500 other texts {accuracy(session, args.seed + 1):.0%} are judged rightly")
    return history


if __name__ == "__main__":
    main()
