"""Shared by the training examples: the loop, with clipping and a progress bar, and the files that are saved."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import click
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import seqspec


def train(model: nn.Module, losses: Iterator[Tensor], steps: int, rate: float, longest: float = 1.0) -> list[float]:
    """One step of Adam for each loss that `losses` computes; gradients with a norm above `longest` are scaled to it."""
    optimizer = torch.optim.Adam(model.parameters(), rate)
    history: list[float] = []
    model.train()
    with click.progressbar(length=steps, label="training", item_show_func=_shown, file=sys.stderr) as bar:
        for loss in islice(losses, steps):
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), longest)
            optimizer.step()
            history.append(loss.item())
            bar.update(1, history[-1])
    model.eval()
    print(f"loss {mean(history[:10]):.3f} -> {mean(history[-10:]):.3f} in {len(history)} steps")
    return history


def save(model: nn.Module, spec: str | Path, folder: Path) -> seqspec.Session:
    """Saves `model.safetensors`, for `to_torch(spec, weights=…)`, and the compiled model, which is returned opened."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), folder / "model.safetensors")
    path = seqspec.to_onnx(spec, folder / "onnx", weights=folder / "model.safetensors")
    print(f"saved {folder / 'model.safetensors'} and {path}")
    return seqspec.Session(path)


def arguments(doc: str | None, argv: Sequence[str] | None, *, steps: int, **choices: Sequence[str]) -> Namespace:
    """--steps, --seed, --output, and an option with the given values for every other name, the first by default."""
    parser = ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("out"), metavar="DIR", help="where the model goes")
    for name, values in choices.items():
        parser.add_argument(f"--{name}", choices=values, default=values[0])
    parsed = parser.parse_args(argv)
    torch.manual_seed(parsed.seed)
    torch.set_num_threads(1)  # such small products are slower on several threads, especially on a busy machine
    return parsed


def padded(rows: Sequence[Sequence[int]], pad_id: int = 0) -> Tensor:
    """ids[B, T], with shorter rows padded on the right."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad_id)


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)


def _shown(loss: float | None) -> str:
    return "" if loss is None else f"loss {loss:.3f}"
