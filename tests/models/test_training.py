"""Training: the loss of every head, which files never see, and gradients through time, whole and cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.loss.loss_utils import ForCausalLMLoss

import seqspec
from seqspec.graph.signature import signature

Array = Any

TOKENS = "input: {kind: tokens, vocab_size: 11, d_model: 6, pad_id: 0}"
GRU = "layers: [{kind: gru, hidden_size: 6}]"
LSTM_BOTH = "layers: [{kind: lstm, hidden_size: 3, bidirectional: true}]"
BLOCK = "layers: [{repeat: 2, block: [{kind: attention, heads: 3}, {kind: ffn, d_ff: 12, activation: relu}]}]"
DECODER = f"decoder: {{{TOKENS}, norm: layernorm, position: rope, {BLOCK}}}"
SERIES = f"encoder: {{input: {{kind: features, size: 3}}, {GRU}}}"
BEHIND = f"""
encoder: {{{TOKENS}, {GRU}}}
decoder:
  {TOKENS}
  layers: [{{kind: gru, hidden_size: 6, attend: {{from: encoder, score: additive, d_attention: 4, query: previous}}}}]
"""

SPECS = {
    "lm": f"{DECODER}\nhead: {{kind: lm, tied: true}}",
    "recurrent lm": f"decoder: {{{TOKENS}, {GRU}}}\nhead: {{kind: lm}}",
    "lm behind an encoder": f"{BEHIND}\nhead: {{kind: lm}}",
    "masked lm": f"encoder: {{{TOKENS}, norm: layernorm, {BLOCK}}}\nhead: {{kind: lm}}",
    "tagger": f"encoder: {{{TOKENS}, {LSTM_BOTH}}}\nhead: {{kind: classifier, classes: 4, pool: none}}",
    "classifier": f"encoder: {{{TOKENS}, {LSTM_BOTH}}}\nhead: {{kind: classifier, classes: 4, pool: final_state}}",
    "regression": f"{SERIES}\nhead: {{kind: regression, size: 2, pool: mean}}",
    "series": f"{SERIES}\nhead: {{kind: regression, size: 2, pool: none}}",
}
UNLABELLED = {
    "embedding": f"encoder: {{{TOKENS}, {GRU}}}\nhead: {{kind: embedding, pool: mean}}",
    "no head": f"encoder: {{{TOKENS}, {GRU}}}",
}
LENGTHS = torch.tensor([[7], [4], [1]])
MASK = torch.arange(7) < LENGTHS
IDS = torch.randint(1, 11, (3, 7), generator=torch.Generator().manual_seed(0)) * MASK


def spec(name: str) -> str:
    return f"seqspec: 1\nname: {name.replace(' ', '-')}\n{(SPECS | UNLABELLED)[name]}\n"


def model(name: str) -> torch.nn.Module:
    return seqspec.to_torch(spec(name), seed=1).double()


def inputs(name: str) -> dict[str, Tensor]:
    """A batch padded on the right."""
    draw = torch.Generator().manual_seed(1)
    if "features" in spec(name):
        return {"features": torch.randn(3, 7, 3, generator=draw, dtype=torch.float64), "attention_mask": MASK.long()}
    return {"input_ids": IDS} | ({"decoder_input_ids": IDS} if "behind" in name else {})


def expected(name: str, out: Any) -> tuple[Tensor, Tensor]:
    """Labels, and the loss as one would write it."""
    draw, logits = torch.Generator().manual_seed(2), out.logits
    if "lm" in name and "masked" not in name:
        labels = IDS.masked_fill(~MASK, -100)
        return IDS, ForCausalLMLoss(logits, labels, vocab_size=11)
    if logits.shape[-1] == 2:
        labels = torch.randn(logits.shape, generator=draw, dtype=torch.float64)
        real = MASK if logits.ndim == 3 else torch.ones(3, dtype=torch.bool)
        return labels, F.mse_loss(logits[real], labels[real])
    labels = torch.randint(0, logits.shape[-1], logits.shape[:-1], generator=draw)
    if logits.ndim == 2:
        return labels, F.cross_entropy(logits, labels)
    return labels, F.cross_entropy(logits[MASK], labels[MASK])


# ---- the loss ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_the_loss_of_a_head(name: str) -> None:
    found = model(name)
    bare = found(**inputs(name))
    assert bare.loss is None
    labels, want = expected(name, bare)
    out = found(**inputs(name), labels=labels)
    assert torch.equal(out.logits, bare.logits)
    # transformers computes in float32
    tolerance = 1e-6 if want.dtype == torch.float32 else 1e-12
    torch.testing.assert_close(out.loss, want.to(out.loss.dtype), rtol=tolerance, atol=tolerance)
    out.loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in found.parameters())


def test_several_heads_have_losses_of_their_own() -> None:
    heads = "tags: {kind: classifier, classes: 4, pool: none}, one: {kind: regression, size: 1, pool: mean}"
    heads += ", e: {kind: embedding, pool: max}"
    text = f"seqspec: 1\nname: m\nencoder: {{{TOKENS}, {LSTM_BOTH}}}\noutputs: {{{heads}}}"
    found, draw = seqspec.to_torch(text).double(), torch.Generator().manual_seed(0)
    tags, one = torch.randint(4, (3, 7), generator=draw), torch.randn(3, 1, generator=draw, dtype=torch.float64)
    out = found(IDS, tags_labels=tags)
    assert out.one_loss is None
    torch.testing.assert_close(out.tags_loss, F.cross_entropy(out.tags[MASK], tags[MASK]), rtol=0, atol=1e-12)
    out = found(IDS, one_labels=one)
    assert out.tags_loss is None
    torch.testing.assert_close(out.one_loss, F.mse_loss(out.one, one), rtol=0, atol=1e-12)
    assert out._fields == ("e", "one", "tags", "one_loss", "tags_loss")
    assert [port.name for port in signature(seqspec.build(text)).outputs] == ["e", "one", "tags"]


def test_what_training_adds_is_no_name_of_an_output() -> None:
    text = f"seqspec: 1\nname: m\nencoder: {{{TOKENS}, {LSTM_BOTH}}}\noutputs: {{a: HEAD, a_loss: HEAD}}"
    text = text.replace("HEAD", "{kind: classifier, classes: 4, pool: none}")
    assert [d.code for d in seqspec.check(text)] == ["SEQ223"]


@pytest.mark.parametrize("name", UNLABELLED)
def test_what_learns_nothing_by_itself_takes_no_labels(name: str) -> None:
    found = model(name)
    assert not hasattr(found(**inputs(name)), "loss")
    with pytest.raises(TypeError, match="labels"):
        found(**inputs(name), labels=IDS)


@pytest.mark.parametrize("name", ["lm", "lm behind an encoder", "tagger", "series"])
def test_files_and_manifests_know_nothing_of_labels(name: str, tmp_path: Path) -> None:
    described = signature(seqspec.build(spec(name)))
    ports = {port.name for port in (*described.inputs, *described.outputs)}
    to_onnx = seqspec.to_onnx(spec(name), tmp_path / "onnx")
    to_torch = tmp_path / "torch"
    seqspec.api.write_torch(spec(name), to_torch)
    session = seqspec.Session(to_onnx)
    ports |= {port.name for port in (*session.inputs, *session.outputs)}
    for file in to_onnx.glob("*.onnx"):
        graph = onnx.load(file, load_external_data=False).graph
        ports |= {v.name for v in (*graph.input, *graph.output)}
        assert not {n.op_type for n in graph.node} & {"LogSoftmax", "GatherElements"}
    for folder in (to_onnx, to_torch):
        told = json.loads((folder / "seqspec.json").read_text())["signature"]
        ports |= {port["name"] for side in ("inputs", "outputs") for port in told[side]}
    assert not ports & {"labels", "loss"}
    assert "logits" in ports


@pytest.mark.parametrize(
    ("name", "labels", "said"),
    [
        ("lm", IDS[:, :5], r"labels have 5 columns, 7 positions 7 or 8"),
        ("lm", IDS.T.reshape(7, 3)[:3], r"labels have 3 columns"),
        ("tagger", IDS[:, :1], r"labels are \[3, 1\], the logits \[3, 7, 4\]"),
        ("classifier", IDS, r"labels are \[3, 7\], the logits \[3, 4\]"),
        ("regression", torch.zeros(3, 1), r"labels are \[3, 1\], the output \[3, 2\]"),
    ],
)
def test_labels_that_do_not_fit_are_refused(name: str, labels: Tensor, said: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=said):
        model(name)(**inputs(name), labels=labels)


def test_the_loss_of_half_precision_is_a_float32() -> None:
    single, half = (seqspec.to_torch(spec("lm"), seed=1) for _ in range(2))
    found = half.bfloat16()(IDS, labels=IDS).loss
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, single(IDS, labels=IDS).loss, rtol=0.02, atol=0)


def test_numbers_at_padding_reach_no_gradient() -> None:
    found, given = model("series"), inputs("series")
    labels = torch.randn(3, 7, 2, dtype=torch.float64)
    found(**given, labels=labels.masked_fill(~MASK[..., None], 7)).loss.backward()
    clean = [p.grad.clone() for p in found.parameters()]
    found.zero_grad()
    found(**given, labels=labels.masked_fill(~MASK[..., None], torch.nan)).loss.backward()
    assert all(torch.equal(p.grad, g) for p, g in zip(found.parameters(), clean, strict=True))


# ---- through time ------------------------------------------------------------------------------------------------

ELMAN = """
seqspec: 1
name: elman
decoder:
  input: {kind: tokens, vocab_size: 9, d_model: 4}
  layers: [{kind: rnn, hidden_size: 5, bias: single}]
head: {kind: lm}
"""
TEXT = np.random.default_rng(0).integers(0, 9, (2, 13))  # 12 positions and what follows the last


def by_hand(weights: dict[str, Array], window: Array, h: Array) -> tuple[float, dict[str, Array], Array]:
    """Loss, gradients and last state of h' = tanh(W x + U h + b), y = V h over ids[B, T + 1]; h[B, H] is a constant."""
    table, w, u, b, v = (weights[n] for n in NAMES)
    ids, targets = window[:, :-1], window[:, 1:]
    count, states, loss = targets.size, [h], 0.0
    grads = {n: np.zeros_like(weights[n]) for n in NAMES}
    d_logits = []
    for t in range(ids.shape[1]):
        states.append(np.tanh(table[ids[:, t]] @ w.T + states[-1] @ u.T + b))
        p = np.exp(states[-1] @ v.T)
        p /= p.sum(1, keepdims=True)
        rows = np.arange(len(p))
        loss -= np.log(p[rows, targets[:, t]]).sum() / count
        p[rows, targets[:, t]] -= 1
        d_logits.append(p / count)
    back = np.zeros_like(h)  # of the loss, by the state behind
    for t in reversed(range(ids.shape[1])):
        grads[NAMES[4]] += d_logits[t].T @ states[t + 1]
        inner = (d_logits[t] @ v + back) * (1 - states[t + 1] ** 2)
        grads[NAMES[1]] += inner.T @ table[ids[:, t]]
        grads[NAMES[2]] += inner.T @ states[t]
        grads[NAMES[3]] += inner.sum(0)
        np.add.at(grads[NAMES[0]], ids[:, t], inner @ w)
        back = inner @ u
    return loss, grads, states[-1]


NAMES = [
    "decoder.embed_tokens.weight",
    *(f"decoder.layers.0.rnn.{leaf}" for leaf in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")),
    "head.weight",
]


def elman() -> tuple[torch.nn.Module, dict[str, Array]]:
    found = seqspec.to_torch(ELMAN, seed=3).double()
    weights = {n: p.detach().numpy() for n, p in found.named_parameters()}
    assert sorted(weights) == sorted(NAMES)
    return found, weights


def gradients(found: torch.nn.Module) -> dict[str, Array]:
    return {n: p.grad.numpy() for n, p in found.named_parameters() if p.grad is not None}


def assert_same(got: dict[str, Array], want: dict[str, Array]) -> None:
    for name in NAMES:
        np.testing.assert_allclose(got[name], want[name], rtol=0, atol=1e-14, err_msg=name)


def test_gradients_go_back_to_the_first_position() -> None:
    found, weights = elman()
    loss, want, _ = by_hand(weights, TEXT, np.zeros((2, 5)))
    out = found(torch.tensor(TEXT[:, :-1]), labels=torch.tensor(TEXT))
    out.loss.backward()
    assert out.loss.item() == pytest.approx(loss, abs=1e-14)
    assert_same(gradients(found), want)


@pytest.mark.parametrize("length", [1, 4, 5])
def test_truncated_gradients_go_back_to_the_window_s_first_position(length: int) -> None:
    """`state.detach()` between windows: the numbers go on, the gradients stop. The last window may be shorter."""
    found, weights = elman()
    state, h = None, np.zeros((2, 5))
    for start in range(0, 12, length):
        window = TEXT[:, start : start + length + 1]
        loss, want, h = by_hand(weights, window, h)
        found.zero_grad()
        out = found(torch.tensor(window[:, :-1]), labels=torch.tensor(window), state=state)
        out.loss.backward()
        assert out.loss.item() == pytest.approx(loss, abs=1e-14)
        assert_same(gradients(found), want)
        state = out.state.detach()


def test_without_detaching_windows_are_the_whole() -> None:
    found, weights = elman()
    _, want, _ = by_hand(weights, TEXT, np.zeros((2, 5)))
    state, losses = None, []
    for start in range(0, 12, 4):
        out = found(
            torch.tensor(TEXT[:, start : start + 4]), labels=torch.tensor(TEXT[:, start : start + 5]), state=state
        )
        losses.append(out.loss)
        state = out.state
    torch.stack(losses).mean().backward()
    assert_same(gradients(found), want)


def test_a_label_behind_the_chunk_is_left_out_unless_given() -> None:
    found, _ = elman()
    ids = torch.tensor(TEXT[:, :4])
    logits = found(ids).logits
    without = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(found(ids, labels=ids).loss, without, rtol=0, atol=1e-14)
    for columns, want in ((1, 0.0), (2, F.cross_entropy(logits[:, 0], torch.tensor(TEXT[:, 1])).item())):
        labels = torch.tensor(TEXT[:, :columns])
        assert found(ids[:, :1], labels=labels).loss.item() == pytest.approx(want, abs=1e-14)


@pytest.mark.parametrize("layers", ["{kind: lstm, hidden_size: 6, num_layers: 2}", BLOCK[len("layers: [") : -1]])
def test_a_detached_state_has_no_history(layers: str) -> None:
    text = f"seqspec: 1\nname: m\ndecoder: {{{TOKENS}, layers: [{layers}]}}\nhead: {{kind: lm}}"
    if "block" in layers:
        text = text.replace("layers:", "norm: layernorm, layers:")
    state = seqspec.to_torch(text)(IDS).state
    floats = [name for name, x in state.items() if x.is_floating_point()]
    assert floats
    assert all(state[name].requires_grad for name in floats)
    assert not any(x.requires_grad for x in state.detach().values())
    assert list(state.detach()) == list(state)
