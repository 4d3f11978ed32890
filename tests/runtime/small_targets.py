"""The target specs, made small by overrides, and what tests of the runtime share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import seqspec
from seqspec.backends.weights import Drawn
from seqspec.diagnostics import SeqspecError
from seqspec.graph.ir import Graph
from seqspec.spec.model import Model

Array = np.ndarray
EXAMPLES = Path(__file__).parents[2] / "examples"
TOKENS = ("vocab_size=61", "d_model=12")
SMALL = {
    "lstm-sentiment": [*(f"encoder.input.{s}" for s in TOKENS), "encoder.layers[0].hidden_size=9"],
    "gru-forecast": ["encoder.input.size=5", "encoder.layers[0].hidden_size=7"],
    "nmt-bahdanau": [
        *(f"{stack}.input.{s}" for stack in ("encoder", "decoder") for s in TOKENS),
        "encoder.layers[0].hidden_size=10",
        "decoder.layers[0].hidden_size=14",
        "decoder.layers[0].attend.d_attention=9",
    ],
    "nmt-luong": [
        *(f"{stack}.input.{s}" for stack in ("encoder", "decoder") for s in TOKENS),
        *(f"{stack}.layers[0].hidden_size=10" for stack in ("encoder", "decoder")),
    ],
    "elman-language-model": [
        *(f"decoder.input.{s}" for s in TOKENS),
        "decoder.layers[0].hidden_size=9",
        "decoder.layers[1].size=12",
    ],
    "lstm-tagger": [*(f"encoder.input.{s}" for s in TOKENS), "encoder.layers[0].hidden_size=9"],
    "transformer-base": [
        "defaults.d_model=16",
        "encoder.input.vocab_size=61",
        *(f"{stack}.layers[0].repeat=2" for stack in ("encoder", "decoder")),
        *(f"{stack}.layers[0].block[0].heads=2" for stack in ("encoder", "decoder")),
        "decoder.layers[0].block[1].heads=4",
        "encoder.layers[0].block[1].d_ff=20",
        "decoder.layers[0].block[2].d_ff=24",
    ],
    "gpt2": [
        "decoder.input.vocab_size=61",
        "decoder.d_model=18",
        "decoder.position.max_length=19",
        "decoder.layers[0].repeat=3",
        "decoder.layers[0].block[0].heads=3",
        "decoder.layers[0].block[1].d_ff=40",
    ],
    "llama-3.2-1b": [
        "decoder.input.vocab_size=61",
        "decoder.d_model=24",
        "decoder.layers[0].repeat=2",
        "decoder.layers[0].block[0].heads=6",
        "decoder.layers[0].block[0].kv_heads=2",
        "decoder.layers[0].block[0].head_dim=8",
        "decoder.layers[0].block[1].d_ff=40",
    ],
    "minilm": [
        "encoder.input.vocab_size=61",
        "encoder.d_model=24",
        "encoder.position.max_length=17",
        "encoder.layers[0].repeat=2",
        "encoder.layers[0].block[0].heads=3",
        "encoder.layers[0].block[1].d_ff=40",
    ],
    "hybrid-window": [
        "decoder.input.vocab_size=61",
        "decoder.d_model=32",
        "decoder.blocks.local[0].mask.all[1].size=4",
        *(f"decoder.blocks.{b}[0].heads=4" for b in ("local", "global")),
        *(f"decoder.blocks.{b}[1].d_ff=40" for b in ("local", "global")),
        "decoder.layers[0].repeat=1",
    ],
}
SPLIT = ("nmt-bahdanau", "nmt-luong", "transformer-base")
STATEFUL = ("gru-forecast", "nmt-bahdanau", "nmt-luong", "elman-language-model", "transformer-base", "gpt2",
            "llama-3.2-1b", "hybrid-window")  # fmt: skip
GENERATING = STATEFUL[1:]


@dataclass(frozen=True)
class Compiled:
    """One model in every form, all with the same weights."""

    name: str
    model: Model
    graph: Graph
    weights: dict[str, Array]
    folder: Path
    session: seqspec.Session
    module: torch.nn.Module


def spec(name: str) -> Model:
    return seqspec.load(EXAMPLES / f"{name}.yaml", SMALL[name])


def random_weights(graph: Graph) -> dict[str, Array]:
    """Around where parameters start, so that norms and biases are no ones and zeros."""
    rng = np.random.default_rng(3)
    return {name: w + rng.normal(0, 0.1, w.shape).astype(np.float32) for name, w in Drawn(graph.root.params, 0).items()}


@contextmanager
def fault(code: str, *words: str) -> Iterator[None]:
    """An error with this code, whose text has all the words."""
    with pytest.raises(SeqspecError) as caught:
        yield
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)


def inputs(name: str, rng: np.random.Generator, batch: int, time: int, encoder_time: int = 0) -> dict[str, Array]:
    """Random inputs without padding; ids from 1, since 0 is the pad_id where there is one."""
    if name == "gru-forecast":
        return {"features": rng.standard_normal((batch, time, 5)).astype(np.float32)}
    if name in SPLIT:
        source = rng.integers(1, 61, (batch, encoder_time or time))
        return {"input_ids": source, "decoder_input_ids": rng.integers(1, 61, (batch, time))}
    return {"input_ids": rng.integers(1, 61, (batch, time))}


def run_torch(
    model: Compiled, given: Mapping[str, Array], state: object = None
) -> tuple[Array, dict[str, torch.Tensor]]:
    """The first output and the state of the module."""
    carried = {"state": state} if state is not None else {}
    with torch.no_grad():
        out = model.module(**{name: torch.from_numpy(a) for name, a in given.items()}, **carried)
    return out[0].numpy(), getattr(out, "state", {})


def close(got: Array, want: Array, tolerance: float = 4e-6) -> None:
    """Within two float32 computations' errors of the largest value."""
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    assert np.abs(got - want).max(initial=0.0) <= tolerance * max(1.0, np.abs(want).max(initial=0.0))
