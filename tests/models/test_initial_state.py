"""Where recurrent layers start, what stands behind them, and the keys of the LSTM: against torch.nn and equations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import seqspec
from seqspec.diagnostics import RuntimeFault
from seqspec.graph.signature import signature

V, T = 11, 7
KINDS: dict[str, type[nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


def spec(layers: list[dict[str, Any]], role: str = "decoder") -> dict[str, Any]:
    head = {"kind": "lm"} if role == "decoder" else {"kind": "classifier", "classes": 3, "pool": "none"}
    tokens = {"kind": "tokens", "vocab_size": V, "d_model": 4}
    return {"seqspec": 1, "name": "m", role: {"input": tokens, "layers": layers}, "head": head}


def recurrent(kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "hidden_size": 5, "num_layers": 2, **more}


def ids(rows: int = 3) -> Tensor:
    return torch.randint(V, (rows, T), generator=torch.Generator().manual_seed(0))


def by_hand(model: nn.Module, role: str, layer: dict[str, Any], x: Tensor, start: list[Tensor]) -> Tensor:
    """The logits with torch's own layer, which starts from `start`[B, L·D, H]."""
    weights = dict(model.state_dict())
    own = {k.rsplit(".", 1)[-1]: w for k, w in weights.items() if f".{layer['kind']}." in k}
    both = bool(layer.get("bidirectional"))
    module = KINDS[layer["kind"]](4, 5, 2, batch_first=True, bidirectional=both, dtype=torch.float64)
    module.load_state_dict(own)
    states = [s.transpose(0, 1).contiguous() for s in start]
    y, _ = module(weights[f"{role}.embed_tokens.weight"][x], states[0] if len(states) == 1 else tuple(states))
    logits = y @ weights["head.weight"].T
    return logits + weights["head.bias"] if "head.bias" in weights else logits


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("both", [False, True])
def test_a_learned_start_is_its_parameter_in_every_row(kind: str, both: bool) -> None:
    layer, role = recurrent(kind, initial_state="learned", bidirectional=both), "encoder" if both else "decoder"
    model = seqspec.to_torch(spec([layer], role)).double().eval()
    starts = [p for n, p in model.named_parameters() if n.rsplit(".", 1)[-1] in ("h0", "c0")]
    assert [tuple(p.shape) for p in starts] == [(4 if both else 2, 5)] * (2 if kind == "lstm" else 1)
    assert all(p.abs().max() > 0 for p in starts)
    out = model(ids())
    want = by_hand(model, role, layer, ids(), [p.expand(3, -1, -1) for p in starts])
    torch.testing.assert_close(out.logits, want, rtol=0, atol=1e-12)
    out.logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in starts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("both", [False, True])
def test_a_given_start_is_an_input_and_zeros_where_left_out(kind: str, both: bool) -> None:
    layer, role = recurrent(kind, initial_state="given", bidirectional=both), "encoder" if both else "decoder"
    model = seqspec.to_torch(spec([layer], role)).double().eval()
    names = ["h", "c"] if kind == "lstm" else ["h"]
    ports = {p.name: p for p in signature(seqspec.build(spec([layer], role))).inputs}
    assert all(ports[f"initial_state.0.{n}"].optional for n in names)
    starts = [torch.randn(3, 4 if both else 2, 5, dtype=torch.float64) for _ in names]
    zeros = [torch.zeros_like(s) for s in starts]
    given = {f"initial_state_0_{n}": s for n, s in zip(names, starts, strict=True)}
    with torch.no_grad():
        out, without = model(ids(), **given), model(ids())
        torch.testing.assert_close(out.logits, by_hand(model, role, layer, ids(), starts), rtol=0, atol=1e-12)
        torch.testing.assert_close(without.logits, by_hand(model, role, layer, ids(), zeros), rtol=0, atol=1e-12)


@pytest.mark.parametrize("initial", ["learned", "given"])
@pytest.mark.parametrize("layers", [[("lstm", 5), ("gru", 4)], [("rnn", 3)]])
def test_later_chunks_start_from_the_state(initial: str, layers: list[tuple[str, int]]) -> None:
    made = [{"kind": kind, "hidden_size": size, "initial_state": initial} for kind, size in layers]
    model = seqspec.to_torch(spec(made)).double().eval()
    start = {"initial_state_0_h": torch.ones(3, 1, layers[0][1], dtype=torch.float64)} if initial == "given" else {}
    with torch.no_grad():
        whole, first = model(ids(), **start), model(ids()[:, :3], **start)
        nothing = model(ids()[:, :0], state=first.state)
        rest = model(ids()[:, 3:], state=nothing.state)
    torch.testing.assert_close(torch.cat([first.logits, rest.logits], 1), whole.logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize("both", [False, True])
def test_a_file_starts_from_what_is_learned(both: bool, tmp_path: Path) -> None:
    layers = [recurrent("lstm", initial_state="learned", bidirectional=both)]
    path = seqspec.to_onnx(spec(layers, "encoder" if both else "decoder"), tmp_path / "out")
    assert (path / "initial.onnx").exists() == (not both)
    model = seqspec.to_torch(seqspec.load(path / "spec.yaml"))
    for rows in (1, 3):
        got = seqspec.Session(path).run({"input_ids": ids(rows).numpy()})["logits"]
        np.testing.assert_allclose(got, model(ids(rows)).logits.detach(), rtol=0, atol=2e-6)


def test_a_file_starts_from_what_is_given(tmp_path: Path) -> None:
    """As an input of the file where nothing is carried; where something is, it is the first past."""
    start = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    encoder = spec([recurrent("gru", initial_state="given", bidirectional=True)], "encoder")
    session, model = seqspec.Session(seqspec.to_onnx(encoder, tmp_path / "both")), seqspec.to_torch(encoder)
    for given in ({}, {"initial_state.0.h": start}):
        tensors = {k.replace(".", "_"): torch.tensor(a) for k, a in given.items()}
        want = model(ids(), **tensors).logits.detach()
        np.testing.assert_allclose(session.run({"input_ids": ids().numpy(), **given})["logits"], want, atol=2e-6)
    decoder = spec([recurrent("gru", initial_state="given")])
    session, model = seqspec.Session(seqspec.to_onnx(decoder, tmp_path / "one")), seqspec.to_torch(decoder)
    want = model(ids(), initial_state_0_h=torch.tensor(start[:, :2])).logits.detach()
    got = session.run({"input_ids": ids().numpy()}, state={"past_state.0.gru.h": start[:, :2]})["logits"]
    np.testing.assert_allclose(got, want, atol=2e-6)
    named = session.run({"input_ids": ids().numpy(), "initial_state.0.h": start[:, :2]})["logits"]
    np.testing.assert_array_equal(named, got)
    with pytest.raises(RuntimeFault):
        session.run({"input_ids": ids().numpy(), "initial_state.0.h": start})  # rows of two directions


def test_elman_puts_out_a_function_of_h() -> None:
    """y_t = g(W h_t + b), h_t = tanh(U x_t + V h_{t-1} + c): Elman 1990."""
    layers = [
        {"kind": "rnn", "hidden_size": 5, "bias": "single"},
        {"kind": "linear", "size": 3, "activation": "sigmoid"},
    ]
    model = seqspec.to_torch({k: v for k, v in spec(layers).items() if k != "head"}).double().eval()
    w = {n.removeprefix("decoder."): p.detach().numpy() for n, p in model.named_parameters()}
    U, W, c = (w[f"layers.0.rnn.{leaf}_l0"] for leaf in ("weight_ih", "weight_hh", "bias_ih"))
    got = model(ids()).last_hidden_state.detach().numpy()
    for row, sequence in enumerate(ids().numpy()):
        h = np.zeros(5)
        for t, x in enumerate(w["embed_tokens.weight"][sequence]):
            h = np.tanh(U @ x + W @ h + c)
            y = 1 / (1 + np.exp(-(w["layers.1.linear.weight"] @ h + w["layers.1.linear.bias"])))
            np.testing.assert_allclose(got[row, t], y, rtol=0, atol=1e-10)


@pytest.mark.parametrize("both", [False, True])
def test_peepholes_and_projection_are_their_equations(both: bool) -> None:
    """Gers et al. 2002 and Sak et al. 2014: i, f see c, o sees c'; h' = R (o tanh(c'))."""
    layer = {"kind": "lstm", "hidden_size": 5, "peepholes": True, "projection_size": 3, "bidirectional": both}
    model = seqspec.to_torch(spec([layer], "encoder")).double().eval()
    w = {n.removeprefix("encoder."): p.detach().numpy() for n, p in model.named_parameters()}
    heads = w["head.weight"], w["head.bias"]
    got = model(ids()).logits.detach().numpy()
    for row, sequence in enumerate(ids().numpy()):
        xs = w["embed_tokens.weight"][sequence]
        sides = [lstmp(w, "", xs)] + ([lstmp(w, "_reverse", xs[::-1])[::-1]] if both else [])
        np.testing.assert_allclose(got[row], np.concatenate(sides, -1) @ heads[0].T + heads[1], rtol=0, atol=1e-10)


def lstmp(w: dict[str, np.ndarray], suffix: str, xs: np.ndarray) -> np.ndarray:
    W, U, b, d, p, R = (
        w[f"layers.0.lstm.{leaf}_l0{suffix}"]
        for leaf in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_ch", "weight_hr")
    )
    h, c, ys = np.zeros(3), np.zeros(5), []
    for x in xs:
        i, f, g, o = np.split(W @ x + b + U @ h + d, 4)
        new = c / (1 + np.exp(-(f + p[5:10] * c))) + np.tanh(g) / (1 + np.exp(-(i + p[:5] * c)))
        h, c = R @ (np.tanh(new) / (1 + np.exp(-(o + p[10:] * new)))), new
        ys.append(h)
    return np.array(ys)
