"""A language model over letters, trained on sentences of a small grammar.

    python examples/train_language_model.py --model lstm

`labels` are the ids themselves. The model shifts them, and leaves out what is padding. The transformer's spec names a
tokenizer, so that what was saved goes on from text:

    python examples/train_language_model.py --model transformer
    seqspec generate out/letters-transformer/onnx --text "the "
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from sentences import END, PAD, START, VOCABULARY, decode, encode, sentences
from torch import Tensor, nn
from training import arguments, padded, save, train

import seqspec

RECURRENT = """
decoder:
  input: {{kind: tokens, vocab_size: {vocabulary}, d_model: 32, pad_id: {pad}}}
  layers: [{{kind: {kind}, hidden_size: 96}}]
head: {{kind: lm}}
"""
MODELS = ("lstm", "gru", "rnn", "transformer")


def spec(kind: str) -> str | Path:
    """A spec as text, or where it lies with its tokenizer."""
    if kind == "transformer":
        return Path(__file__).parent / "letters.yaml"
    return f"seqspec: 1\nname: letters-{kind}\n" + RECURRENT.format(vocabulary=VOCABULARY, pad=PAD, kind=kind)


def losses(model: nn.Module, seed: int, rows: int = 24) -> Iterator[Tensor]:
    text = sentences(seed)
    while True:
        ids = padded([[START, *encode(line), END] for line in islice(text, rows)])
        yield model(ids, labels=ids).loss


def main(argv: Sequence[str] | None = None) -> list[float]:
    args = arguments(__doc__, argv, steps=400, model=MODELS)
    model = seqspec.to_torch(spec(args.model), seed=args.seed)
    history = train(model, losses(model, args.seed), args.steps, rate=0.003 if args.model == "transformer" else 0.01)
    session = save(model, spec(args.model), args.output / f"letters-{args.model}")
    for start in ("the ", "a ", "when the "):
        made = session.generate([[START, *encode(start)]], max_new_tokens=60, eos_id=END)
        print(start + decode([int(n) for n in made[0]]))
    return history


if __name__ == "__main__":
    main()
