"""Words written backwards, by a GRU encoder-decoder with Bahdanau attention.

    python examples/train_seq2seq.py

Teacher forcing: the decoder reads the right word while it learns, whatever it would have written itself. The target
with its start and its end is both what it reads and its `labels`; the model shifts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from torch import Tensor, nn
from training import arguments, padded, save, train

import seqspec

PAD, START, END, LETTERS = 0, 1, 2, "abcdefgh"
SPEC = f"""
seqspec: 1
name: backwards
defaults: {{d_model: 32}}
encoder:
  input: {{kind: tokens, vocab_size: {3 + len(LETTERS)}, pad_id: {PAD}}}
  layers: [{{kind: gru, hidden_size: 48, bidirectional: true}}]
decoder:
  input: {{kind: tokens, vocab_size: {3 + len(LETTERS)}, pad_id: {PAD}}}
  layers:
    - kind: gru
      hidden_size: 64
      initial_state: {{kind: bridge, from: encoder, map: linear_tanh}}
      attend: {{from: encoder, score: additive, d_attention: 48, query: previous}}
head: {{kind: lm}}
"""


def words(random: Random, rows: int) -> list[list[int]]:
    """Words of 2 to 7 letters, as ids."""
    return [[3 + random.randrange(len(LETTERS)) for _ in range(random.randint(2, 7))] for _ in range(rows)]


def losses(model: nn.Module, seed: int, rows: int = 64) -> Iterator[Tensor]:
    random = Random(seed)
    while True:
        source = words(random, rows)
        target = padded([[START, *reversed(word), END] for word in source])
        yield model(input_ids=padded(source), decoder_input_ids=target, labels=target).loss


def backwards(session: seqspec.Session, source: list[list[int]]) -> list[list[int]]:
    """The greedy output of the compiled model."""
    made = session.generate(source, decoder_start_id=START, eos_id=END, max_new_tokens=8)
    rows = [[int(n) for n in row] for row in made]
    return [row[: row.index(END)] if END in row else row for row in rows]


def accuracy(session: seqspec.Session, seed: int, rows: int = 200) -> float:
    """The fraction of new words that it reverses without a mistake."""
    source = words(Random(seed), rows)
    return sum(got == word[::-1] for got, word in zip(backwards(session, source), source, strict=True)) / rows


def main(argv: Sequence[str] | None = None) -> list[float]:
    args = arguments(__doc__, argv, steps=500)
    model = seqspec.to_torch(SPEC, seed=args.seed)
    history = train(model, losses(model, args.seed), args.steps, rate=0.01)
    session = save(model, SPEC, args.output / "backwards")
    some = ("beach", "face", "had")
    for word, made in zip(some, backwards(session, [_ids(word) for word in some]), strict=True):
        print(f"{word} -> {''.join(LETTERS[n - 3] for n in made if n >= 3)}")
    print(f"of 200 other words {accuracy(session, args.seed + 1):.0%} are right")
    return history


def _ids(word: str) -> list[int]:
    return [3 + LETTERS.index(letter) for letter in word]


if __name__ == "__main__":
    main()
