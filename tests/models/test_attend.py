"""Attention inside a recurrent step, against the papers' equations written out in NumPy, one row at a time."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from recurrent_equations import Weights, gru, lstm, sigmoid

import seqspec
from seqspec.graph.signature import signature
from seqspec.runtime.generate import generate

Array = Any
H, M, A, V, SPAN = 6, 6, 5, 13, 2
EXAMPLES = Path(__file__).parents[2] / "examples"

# True is real: padding on the right, on the left, in holes, nowhere; the decoder's are others
SOURCE = np.array([[1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1], [1, 0, 1, 1, 0, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
TARGET = np.array([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1]])


def spec(cell: str, **attend: Any) -> dict[str, Any]:
    """A small translator; the memory has as many channels as h, so that `dot` fits."""
    tokens = {"kind": "tokens", "vocab_size": V, "d_model": 4}
    layer = {"kind": cell, "hidden_size": H, "attend": {"from": "encoder", "return_weights": True, **attend}}
    return {
        "seqspec": 1,
        "name": "translator",
        "encoder": {"input": tokens, "layers": [{"kind": "gru", "hidden_size": M}]},
        "decoder": {"input": tokens, "layers": [layer]},
        "head": {"kind": "lm"},
    }


COMBINATIONS = [
    {"score": score, "query": query, **more, **window}
    for score in ("additive", "dot", "general", "concat")
    for query, more in (
        ("previous", {"output": "hidden"}),
        ("previous", {"output": "concat"}),
        ("current", {"output": "concat"}),
        ("current", {"output": "tanh"}),
        ("current", {"output": "tanh", "input_feeding": True}),
        ("current", {"output": "concat", "input_feeding": True}),
    )
    for window in ({}, {"window": {"kind": "local_p", "size": SPAN}})
]


def name(combination: dict[str, Any]) -> str:
    return "-".join(k if v is True else k if isinstance(v, dict) else str(v) for k, v in combination.items())


# ---- the equations -------------------------------------------------------------------------------------------------


def attention(w: Weights, score: str, window: bool, h: Array, memory: Array) -> tuple[Array, Array]:
    """context, weights"""
    match score:
        case "additive":  # Bahdanau et al. 2015: v · tanh(W h + U m)
            v, W, U = w["step.score_proj.weight"][0], w["step.query_proj.weight"], w["key_proj.weight"]
            scores = [v @ np.tanh(W @ h + U @ m) for m in memory]
        case "dot":  # Luong et al. 2015, equation 8
            scores = [h @ m for m in memory]
        case "general":
            scores = [h @ (w["key_proj.weight"] @ m) for m in memory]
        case "concat":
            v, W = w["step.score_proj.weight"][0], w["step.concat_proj.weight"]
            scores = [v @ np.tanh(W @ np.concatenate([h, m])) for m in memory]
    places = np.arange(len(memory))
    center = None
    if window:  # equations 9 and 10
        logit = w["step.position_score_proj.weight"][0] @ np.tanh(w["step.position_proj.weight"] @ h)
        center = len(memory) * sigmoid(logit)
        places = places[np.abs(places - center) <= SPAN]
    e = np.exp(np.array(scores)[places])
    weights = np.zeros(len(memory))
    weights[places] = e / e.sum()
    if center is not None:
        weights[places] *= np.exp(-((places - center) ** 2) / (2 * (SPAN / 2) ** 2))
    return weights @ memory, weights


def decode(w: Weights, cell: str, options: dict[str, Any], xs: Array, memory: Array) -> tuple[Array, Array]:
    """xs[T, I], memory[S, M] -> what the layer puts out [T, O], weights[T, S]"""
    width = H + M if options["output"] == "concat" else H
    h, c, fed = np.zeros(H), np.zeros(H), np.zeros(width)
    outputs, weights = [], []
    for x in xs:
        if options["query"] == "previous":
            context, seen = attention(w, options["score"], "window" in options, h, memory)
            x = np.concatenate([x, context])
        elif options.get("input_feeding"):
            x = np.concatenate([x, fed])
        if cell == "lstm":
            h, c = lstm(w, "step.lstm", x, h, c)
        else:
            h = gru(w, "step.gru", x, h)
        if options["query"] == "current":
            context, seen = attention(w, options["score"], "window" in options, h, memory)
        match options["output"]:
            case "hidden":
                fed = h
            case "concat":
                fed = np.concatenate([h, context])
            case "tanh":  # equation 5
                fed = np.tanh(w["step.output_proj.weight"] @ np.concatenate([context, h]))
        outputs.append(fed)
        weights.append(seen)
    return np.array(outputs), np.array(weights)


def translate(
    model: torch.nn.Module, cell: str, options: dict[str, Any], source: Array, target: Array
) -> tuple[Array, Array]:
    """Ids of one row without padding -> logits[T, V], weights[T, S]"""
    encoder, decoder, whole = (Weights(model, p) for p in ("encoder.layers.0.", "decoder.layers.0.", ""))
    memory, h = [], np.zeros(M)
    for x in whole["encoder.embed_tokens.weight"][source]:
        h = gru(encoder, "gru", x, h)
        memory.append(h)
    xs = whole["decoder.embed_tokens.weight"][target]
    y, weights = decode(decoder, cell, options, xs, np.array(memory))
    return y @ whole["head.weight"].T, weights


# ---- tests ---------------------------------------------------------------------------------------------------------


def batch() -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(3)
    return {
        "input_ids": torch.tensor(rng.integers(0, V, SOURCE.shape)),
        "attention_mask": torch.tensor(SOURCE),
        "decoder_input_ids": torch.tensor(rng.integers(0, V, TARGET.shape)),
        "decoder_attention_mask": torch.tensor(TARGET),
    }


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("options", COMBINATIONS, ids=name)
def test_torch_is_the_equations(cell: str, options: dict[str, Any]) -> None:
    model = seqspec.to_torch(spec(cell, **options), seed=1).double().eval()
    given = batch()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 3  # so that weights are not all alike
        out = model(**given)
    logits, weights = out.logits.numpy(), out.attentions_0.numpy()
    for row in range(len(SOURCE)):
        source, target = SOURCE[row] == 1, TARGET[row] == 1
        ids = given["input_ids"][row].numpy()[source], given["decoder_input_ids"][row].numpy()[target]
        want, seen = translate(model, cell, options, *ids)
        np.testing.assert_allclose(logits[row, target], want, rtol=0, atol=1e-10)
        np.testing.assert_allclose(weights[row][np.ix_(target, source)], seen, rtol=0, atol=1e-10)
        assert not weights[row][:, ~source].any()
        assert not weights[row][~target].any()


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize(
    "options", [*COMBINATIONS[4::12], *COMBINATIONS[9::12], *COMBINATIONS[1:2], *COMBINATIONS[11::12]], ids=name
)
def test_files_agree_in_chunks_and_under_padding(cell: str, options: dict[str, Any], tmp_path: Path) -> None:
    seqspec.to_onnx(spec(cell, **options), tmp_path / "out", verify=False)
    result = seqspec.verify(tmp_path / "out")
    assert result.passed, result.worst
    assert {"logits", "attentions.0"} <= result.by_name().keys()


@pytest.mark.parametrize("options", COMBINATIONS, ids=name)
def test_gradients_are_finite_where_a_source_is_empty(options: dict[str, Any]) -> None:
    model = seqspec.to_torch(spec("lstm", **options), seed=1).double()
    given = batch()
    given["attention_mask"] = given["attention_mask"].clone()
    given["attention_mask"][1] = 0
    out = model(**given)
    assert not out.attentions_0[1].any()
    (out.logits.square().sum() + out.attentions_0.square().sum()).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.any()


def test_what_is_fed_back_is_a_state() -> None:
    graph = seqspec.build(spec("lstm", query="current", input_feeding=True))
    states = {s.past: s.shape for s in signature(graph).states if not s.held}
    assert {n: shape[-1] for n, shape in states.items()} == {
        "past_state.0.step.h": H,
        "past_state.0.step.c": H,
        "past_state.0.step.output": H,
    }


@pytest.mark.parametrize("length", [0, 1])
def test_short_calls(length: int) -> None:
    model = seqspec.to_torch(spec("gru", query="current", window={"kind": "local_p", "size": 1})).eval()
    given = batch()
    whole = model(**given)
    first = model(**{k: v[:, :length] if k.startswith("decoder") else v for k, v in given.items()})
    rest = {k: v[:, length:] for k, v in given.items() if k.startswith("decoder")}
    second = model(**rest, state=first.state)
    torch.testing.assert_close(torch.cat([first.logits, second.logits], 1), whole.logits)
    torch.testing.assert_close(torch.cat([first.attentions_0, second.attentions_0], 1), whole.attentions_0)


SMALL = [
    *(f"{s}.input.{key}" for s, key in product(("encoder", "decoder"), ("vocab_size=31", "d_model=8"))),
    "encoder.layers[0].hidden_size=12",
    "decoder.layers[0].hidden_size=12",
]


def test_greedy_decoding_is_the_same_in_torch_and_onnx(tmp_path: Path) -> None:
    model = seqspec.load(EXAMPLES / "nmt-luong.yaml", SMALL)
    module = seqspec.to_torch(model, seed=4)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter *= 4
    path = seqspec.to_onnx(model, tmp_path / "out", weights=dict(module.state_dict()))
    sources = [[3, 9, 27, 5], [8, 2], [30, 1, 4, 4, 17, 6]]
    options: dict[str, Any] = {"decoder_start_id": 1, "max_new_tokens": 12}
    ours = generate(module, sources, **options)
    assert np.array_equal(ours, seqspec.Session(path).generate(sources, **options))
    assert len({tuple(row) for row in ours}) > 1
