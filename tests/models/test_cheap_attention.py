"""Attention that costs n, and attention without parameters: against the equations, in steps, padded; and costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attention_equations import OneLayer, attention, features, heads_of, single

import seqspec

Array = Any
T = 9
REAL = np.array([[1, 1, 0, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1, 1, 1]])
KEPT = REAL.astype(bool)


def phi(x: Array) -> Array:
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def linear_attention(x: Array, weights: dict[str, Array], heads: int, groups: int, allowed: Array) -> Array:
    """Σ_j φ(q)·φ(k_j) v_j / Σ_j φ(q)·φ(k_j), quadratic, over the allowed j."""
    q, k, v = (heads_of(x, weights, letter, n) for letter, n in zip("qkv", (heads, groups, groups), strict=True))
    k, v = (np.repeat(a, heads // groups, 1) for a in (k, v))
    scores = np.where(allowed[:, None], np.einsum("bhid,bhjd->bhij", phi(q), phi(k)), 0)
    total = scores.sum(-1, keepdims=True)
    y = np.einsum("bhij,bhjd->bihd", scores / np.where(total > 0, total, 1), v).reshape(*x.shape[:2], -1)
    return y @ weights["o_proj.weight"].T + weights["o_proj.bias"]


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (3, 1)])
def test_linear_attention_is_its_equation(stack: str, heads: int, groups: int, tmp_path: Path) -> None:
    layer = f"{{kind: linear_attention, heads: {heads}, kv_heads: {groups}, head_dim: 4, value_dim: 5}}"
    one = OneLayer(layer, stack)
    x = np.where(KEPT[..., None], features(2, T), 0)
    allowed = KEPT[:, None] & (np.tri(T, dtype=bool) if stack == "decoder" else True)
    want = linear_attention(one.norm(x), one.weights(), heads, groups, allowed)
    inputs = {"features": x, "attention_mask": REAL}
    np.testing.assert_allclose(one.layer(inputs), want, atol=1e-10)
    filed = one.session(tmp_path).run(single(inputs))["last_hidden_state"]
    np.testing.assert_allclose(filed - x, want, atol=2e-6)


@pytest.mark.parametrize("length", [64, 65, 131])
def test_linear_attention_of_long_texts_in_chunks(length: int, tmp_path: Path) -> None:
    one = OneLayer("{kind: linear_attention, heads: 3}", "decoder")
    x = features(2, length)
    want = linear_attention(one.norm(x), one.weights(), 3, 3, np.tri(length, dtype=bool)[None])
    np.testing.assert_allclose(one.layer({"features": x}), want, atol=1e-10)
    session = one.session(tmp_path)
    for stops in ([length], [1, 2, 50, length], [63, length], list(range(1, length + 1))):
        state, filed, start = None, None, 0
        for stop in stops:
            out = one.run({"features": x[:, start:stop]}, state)
            made = session.run(single({"features": x[:, start:stop]}), filed)
            state, filed = out.state, made.state
            np.testing.assert_allclose(out[0].numpy() - x[:, start:stop], want[:, start:stop], atol=1e-10)
            np.testing.assert_allclose(made["last_hidden_state"] - x[:, start:stop], want[:, start:stop], atol=4e-6)
            start = stop
        assert {n: tuple(s.shape) for n, s in state.items()} == {
            "past_state.0.linear_attention.kv_sum": (2, 3, 4, 4),
            "past_state.0.linear_attention.key_sum": (2, 3, 4),
        }


def test_low_rank_attention_is_its_equation(tmp_path: Path) -> None:
    heads = "heads: 4, kv_heads: 2, value_dim: 2, softcap: 2"
    one = OneLayer(f"{{kind: low_rank_attention, {heads}, projected_length: 3, max_length: 11}}")
    x, w = np.where(KEPT[..., None], features(2, T), 0), one.weights()
    place = np.maximum(np.cumsum(REAL, 1) - 1, 0)
    q = heads_of(one.norm(x), w, "q", 4)
    summed = []
    for letter, name in (("k", "e_proj.weight"), ("v", "f_proj.weight")):
        rows = w[name][:, place] * KEPT[None]  # [k, B, T]
        summed.append(np.repeat(np.einsum("kbt,bgtd->bgkd", rows, heads_of(one.norm(x), w, letter, 2)), 2, 1))
    scores = 2 * np.tanh(np.einsum("bhid,bhkd->bhik", q, summed[0]) * 3**-0.5 / 2)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    y = np.einsum("bhik,bhkd->bihd", weights, summed[1]).reshape(2, T, -1)
    want = y @ w["o_proj.weight"].T + w["o_proj.bias"]
    inputs = {"features": x, "attention_mask": REAL}
    np.testing.assert_allclose(one.layer(inputs), want, atol=1e-10)
    filed = one.session(tmp_path).run(single(inputs))["last_hidden_state"]
    np.testing.assert_allclose(filed - x, want, atol=2e-6)


def test_low_rank_attention_ends_with_an_error(tmp_path: Path) -> None:
    one = OneLayer("{kind: low_rank_attention, heads: 3, projected_length: 3, max_length: 11}")
    session = one.session(tmp_path)
    one.run({"features": features(1, 11)})
    with pytest.raises(IndexError, match=r"position 11 .* max_length is 11"):
        one.run({"features": features(1, 12)})
    with pytest.raises(seqspec.RuntimeFault):
        session.run(single({"features": features(1, 12)}))


def test_attention_of_x_alone(tmp_path: Path) -> None:
    """softmax(X Xᵀ) X: no parameter, no norm, no residual."""
    layer = "{kind: attention, heads: 1, projections: none, scale: 1, residual: none}"
    text = "seqspec: 1\nname: x\nencoder: {input: {kind: features, size: 6}, d_model: 6, norm_placement: none, "
    text += f"layers: [{{block: [{layer}]}}]}}"
    model = seqspec.to_torch(text, seed=0)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    assert list(weights) == ["encoder.input_proj.weight", "encoder.input_proj.bias"]
    given = np.random.default_rng(0).normal(size=(2, T, 6))
    x = given @ weights["encoder.input_proj.weight"].T + weights["encoder.input_proj.bias"]
    scores = np.exp(x @ x.transpose(0, 2, 1))
    want = scores / scores.sum(-1, keepdims=True) @ x
    session = seqspec.Session(seqspec.to_onnx(text, tmp_path / "out", weights=weights))
    np.testing.assert_allclose(session.run(single({"features": given}))["last_hidden_state"], want, atol=4e-6)
    with torch.no_grad():
        made = model.double().eval()(torch.tensor(given)).last_hidden_state.numpy()
    np.testing.assert_allclose(made, want, atol=1e-10)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_attention_without_parameters(stack: str, tmp_path: Path) -> None:
    one = OneLayer("{kind: attention, heads: 1, projections: none, scale: 1}", stack)
    assert one.weights() == {}
    x = np.where(KEPT[..., None], features(2, T), 0)
    normed = one.norm(x)
    scores = np.exp(np.einsum("bid,bjd->bij", normed, normed))
    scores = np.where(KEPT[:, None] & (np.tri(T, dtype=bool) if stack == "decoder" else True), scores, 0)
    total = scores.sum(-1, keepdims=True)
    want = scores / np.where(total > 0, total, 1) @ normed
    inputs = {"features": x, "attention_mask": REAL}
    np.testing.assert_allclose(one.layer(inputs), want, atol=1e-10)
    filed = one.session(tmp_path).run(single(inputs))["last_hidden_state"]
    np.testing.assert_allclose(filed - x, want, atol=4e-6)


def test_widths_of_keys_and_values_apart(tmp_path: Path) -> None:
    """One head with d_k = 7 and d_v = 5, of which neither is the stack's width; and several, with H · d_v free."""
    for heads, kv_heads in ((1, 1), (6, 2), (4, 1)):
        counts = f"heads: {heads}, kv_heads: {kv_heads}, head_dim: 7, value_dim: 5"
        one = OneLayer(f"{{kind: attention, {counts}, return_weights: true}}")
        x = features(2, T)
        everything = np.ones((2, T, T), bool)
        want, weights = attention(one.norm(x), one.weights(), heads, everything, kv_heads=kv_heads)
        out = one.run({"features": x})
        np.testing.assert_allclose(out.last_hidden_state.numpy() - x, want, atol=1e-10)
        np.testing.assert_allclose(out.attentions_0, weights, atol=1e-10)
        filed = one.session(tmp_path / str(heads)).run(single({"features": x}))
        np.testing.assert_allclose(filed["last_hidden_state"] - x, want, atol=2e-6)
        np.testing.assert_allclose(filed["attentions.0"], weights, atol=2e-6)


READING = """
seqspec: 1
name: reading
encoder: {ENCODER}
decoder:
  input: {kind: tokens, vocab_size: 20}
  d_model: 12
  layers:
    - block:
        - {kind: attention, heads: 3, return_weights: true}
        - {kind: cross_attention, from: encoder, heads: 2, value_dim: 4, return_weights: true}
head: {kind: lm}
"""


@pytest.mark.parametrize(
    "encoder",
    [
        "input: {kind: features, size: 12}, layers: [{kind: lstm, hidden_size: 5, bidirectional: true}]",
        "input: {kind: features, size: 12}, layers: [{kind: rnn, hidden_size: 7}]",
        "input: {kind: features, size: 12}, d_model: 8, layers: [{block: [{kind: linear_attention, heads: 2}]}]",
    ],
)
def test_cross_attention_over_any_stack(encoder: str, tmp_path: Path) -> None:
    spec = READING.replace("ENCODER", encoder)
    model = seqspec.to_torch(spec).eval()
    x, ids = features(2, T).astype(np.float32), np.random.default_rng(0).integers(0, 20, (2, 6))
    inputs = {"features": x, "attention_mask": REAL, "decoder_input_ids": ids}
    with torch.no_grad():
        out = model(**{k: torch.from_numpy(v) for k, v in inputs.items()})
    weights, own = out.attentions_0_cross_attention, out.attentions_0_attention
    assert weights.shape == (2, 2, 6, T)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    assert (weights.numpy()[~np.broadcast_to(KEPT[:, None, None], weights.shape)] == 0).all()
    session = seqspec.Session(seqspec.to_onnx(spec, tmp_path / "onnx", weights=model.state_dict()))
    first = session.run({**inputs, "decoder_input_ids": ids[:, :4]})
    rest = session.run({"decoder_input_ids": ids[:, 4:]}, first.state)
    np.testing.assert_allclose(np.concatenate([first["logits"], rest["logits"]], 1), out.logits, atol=2e-6)
    np.testing.assert_allclose(rest["attentions.0.cross_attention"], weights[:, :, 4:], atol=2e-6)
    np.testing.assert_allclose(rest["attentions.0.attention"], own[:, :, 4:], atol=2e-6)


# ---- cost --------------------------------------------------------------------------------------------------------

GROWING = [
    ("{kind: attention, heads: 3}", 4),
    ("{kind: attention, heads: 3, mask: causal}", 4),
    ("{kind: attention, heads: 3, mask: {kind: window, size: 8}}", 2),
    ("{kind: attention, heads: 3, mask: {any: [{kind: window, size: 8}, {kind: global, tokens: [0]}]}}", 2),
    ("{kind: attention, heads: 3, mask: {kind: block_sparse, block_size: 8}}", 2),
    ("{kind: linear_attention, heads: 3}", 2),
    ("{kind: low_rank_attention, heads: 3, projected_length: 8, max_length: 4096}", 2),
]


@pytest.mark.parametrize(("layer", "factor"), GROWING)
def test_twice_the_text_costs_as_the_mask_allows(layer: str, factor: int) -> None:
    once, twice = (mixing(layer, time) for time in (1024, 2048))
    assert twice / once == pytest.approx(factor, rel=0.02)


def mixing(layer: str, time: int) -> int:
    """FLOPs beyond those of an attention in which each position sees itself alone, which are those of linear maps."""
    alone = "{kind: attention, heads: 3, mask: {kind: window, size: 1}}"
    costs = [seqspec.report(OneLayer(text).text, batch=1, time=time).flops for text in (layer, alone)]
    return costs[0] - costs[1]
