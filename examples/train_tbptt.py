"""Truncated back-propagation through time: an LSTM reads one endless text, a window at a time.

    python examples/train_tbptt.py

The state goes on from window to window and its gradient does not: `state.detach()`. A window has one letter more than
is read, so that its last position, too, has a label.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from sentences import VOCABULARY, encode, sentences
from torch import Tensor, nn
from training import arguments, mean, save, train

import seqspec

SPEC = f"""
seqspec: 1
name: letters-without-end
decoder:
  input: {{kind: tokens, vocab_size: {VOCABULARY}, d_model: 32}}
  layers: [{{kind: lstm, hidden_size: 96, forget_bias: 1}}]
head: {{kind: lm}}
"""
ROWS, WINDOW = 16, 24


def windows(seed: int) -> Iterator[Tensor]:
    """ids[B, T + 1] of continued texts; the last column is the first of the next window."""
    texts = [chain.from_iterable(encode(line + " ") for line in sentences(1000 * seed + row)) for row in range(ROWS)]
    last = torch.tensor([[next(text)] for text in texts])
    while True:
        more = torch.tensor([[next(text) for _ in range(WINDOW)] for text in texts])
        yield torch.cat([last, more], 1)
        last = more[:, -1:]


def losses(model: nn.Module, seed: int) -> Iterator[Tensor]:
    state = None
    for window in windows(seed):
        out = model(window[:, :-1], labels=window, state=state)
        state = out.state.detach()
        yield out.loss


def evaluate(model: nn.Module, seed: int, count: int = 20, *, carried: bool) -> float:
    """The loss on new texts, with the state carried from window to window, or reset for each window."""
    state, found = None, []
    with torch.no_grad():
        for _, window in zip(range(count), windows(seed), strict=False):
            out = model(window[:, :-1], labels=window, state=state)
            state = out.state if carried else None
            found.append(out.loss.item())
    return mean(found)


def main(argv: Sequence[str] | None = None) -> list[float]:
    args = arguments(__doc__, argv, steps=500)
    model = seqspec.to_torch(SPEC, seed=args.seed)
    history = train(model, losses(model, args.seed), args.steps, rate=0.01)
    with_state, without = (evaluate(model, args.seed + 1, carried=c) for c in (True, False))
    print(f"on other texts: loss {with_state:.3f} with the state carried, {without:.3f} with each window on its own")
    save(model, SPEC, args.output / "letters-without-end")
    return history


if __name__ == "__main__":
    main()
