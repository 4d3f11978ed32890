"""What is added to scores, and what is turned: ALiBi, relative bias, rotary scalings, against equations and peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attention_equations import OneLayer, attention, features, single
from transformers import LlamaConfig, T5Config, T5ForConditionalGeneration
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

import seqspec
from seqspec.ops.biases import AlibiBias, RelativeBias
from seqspec.ops.rope import RopeTables

Array = Any
SLOPES = {
    1: [0.00390625],
    3: [0.0625, 0.00390625, 0.25],
    6: [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125],
    8: [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625],
}
SLOPES[12] = [*SLOPES[8], 0.7071067812, 0.3535533906, 0.1767766953, 0.08838834765]
T = 9
REAL = np.array([[1, 1, 0, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1, 1, 1]])

# ---- ALiBi -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", SLOPES)
def test_19_slopes(heads: int) -> None:
    slopes = AlibiBias(heads).slopes
    np.testing.assert_allclose(slopes, SLOPES[heads], rtol=1e-9)
    last = build_alibi_tensor(torch.ones(1, 4), heads, torch.float32)[:, 0, -1]
    np.testing.assert_allclose(np.array(slopes) * 3, last, rtol=1e-6)
    last = build_mpt_alibi_tensor(heads, 4)[:, 0, 0]
    np.testing.assert_allclose(np.array(slopes) * -3, last, rtol=1e-6)


def test_19_the_bias_of_a_query() -> None:
    query, key = np.array(3)[None, None, None, None], np.arange(4)[None, None, None]
    (bias,) = AlibiBias(6).reference(np, {}, query, key, np.zeros(()))
    np.testing.assert_allclose(bias[0, 0, 0], [-0.75, -0.5, -0.25, 0.0])


@pytest.mark.parametrize("heads", [1, 3, 6, 12])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_alibi_is_its_equation(heads: int, stack: str, softcap: float | None, tmp_path: Path) -> None:
    capped = f", softcap: {softcap}" if softcap else ""
    one = OneLayer(f"{{kind: attention, heads: {heads}, head_dim: 4, position: alibi{capped}}}", stack)
    x = np.where(REAL[..., None], features(2, T), 0)
    bias = -np.array(SLOPES[heads])[:, None, None] * np.abs(ways(REAL))[:, None]
    allowed = REAL.astype(bool)[:, None] & ((ways(REAL) <= 0) if stack == "decoder" else True)
    want, _ = attention(one.norm(x), one.weights(), heads, allowed, bias=bias, softcap=softcap)
    check(one, x, want, tmp_path)


def ways(real: Array) -> Array:
    """key − query in real tokens: [B, T, T]."""
    place = np.cumsum(real, 1) - 1
    return place[:, None] - place[:, :, None]


def check(one: OneLayer, x: Array, want: Array, folder: Path) -> None:
    """PyTorch and a file, at real tokens."""
    kept, inputs = REAL.astype(bool), {"features": x, "attention_mask": REAL}
    np.testing.assert_allclose(one.layer(inputs)[kept], want[kept], atol=1e-9)  # slopes have ten digits
    filed = one.session(folder).run(single(inputs))["last_hidden_state"]
    np.testing.assert_allclose((filed - x)[kept], want[kept], atol=2e-6)


# ---- relative bias -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (32, 100), (8, 20), (6, 17), (64, 256), (4, 3)])
@pytest.mark.parametrize("both", [True, False])
def test_buckets_are_t5s(buckets: int, farthest: int, both: bool) -> None:
    way = torch.arange(-2 * farthest, 2 * farthest + 1)
    want = T5Attention._relative_position_bucket(way, both, buckets, farthest).tolist()
    assert [RelativeBias(1, buckets, farthest, both).bucket(int(w)) for w in way] == want


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_relative_bias_is_its_equation(stack: str, tmp_path: Path) -> None:
    layer = "{kind: attention, heads: 3, scale: 1, position: {kind: relative_bias, buckets: 8, max_distance: 6}}"
    one = OneLayer(layer, stack)
    x = np.where(REAL[..., None], features(2, T), 0)
    table = one.model.state_dict()[f"{stack}.embed_relative.weight"].numpy()
    way = torch.from_numpy(ways(REAL))
    bucket = T5Attention._relative_position_bucket(way, stack == "encoder", 8, 6).numpy()
    allowed = REAL.astype(bool)[:, None] & ((ways(REAL) <= 0) if stack == "decoder" else True)
    bias = np.moveaxis(table[bucket], -1, 1)
    want, _ = attention(one.norm(x), one.weights(), 3, allowed, bias=bias, scale=1)
    check(one, x, want, tmp_path)


T5 = """
seqspec: 1
name: t5
defaults:
  d_model: 20
  position: {kind: relative_bias, buckets: 8, max_distance: 12}
  norm: {kind: rmsnorm, eps: 1.0e-6}
  bias: false
encoder:
  input: {kind: tokens, vocab_size: 40, pad_id: 0}
  layers: [{repeat: 2, block: [{kind: attention, heads: 3, head_dim: 8, scale: 1}, FFN]}]
decoder:
  input: {kind: tokens, share: encoder.input}
  layers:
    - repeat: 3
      block:
        - {kind: attention, heads: 3, head_dim: 8, scale: 1}
        - {kind: cross_attention, from: encoder, heads: 3, head_dim: 8, scale: 1}
        - FFN
head: {kind: lm, bias: false}
""".replace("FFN", "{kind: ffn, d_ff: 24, activation: gelu_tanh, gated: true}")


def t5() -> tuple[T5ForConditionalGeneration, dict[str, torch.Tensor]]:
    """A model of transformers, and its weights under the names they have here."""
    config = T5Config(
        vocab_size=40, d_model=20, d_kv=8, d_ff=24, num_heads=3, num_layers=2, num_decoder_layers=3, dropout_rate=0.0,
        relative_attention_num_buckets=8, relative_attention_max_distance=12, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = T5ForConditionalGeneration(config).double().eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(0.05 * torch.randn_like(p)).copy_(p.float())
    return theirs, {ours: theirs.state_dict()[name] for ours, name in t5_names(seqspec.to_torch(T5).state_dict())}


def test_t5_is_transformers(tmp_path: Path) -> None:
    theirs, weights = t5()
    mine = seqspec.to_torch(T5, weights=weights).double().eval()
    random = np.random.default_rng(1)
    ids, decoded = random.integers(1, 40, (2, 17)), random.integers(1, 40, (2, 14))
    mask = np.ones((2, 17), np.int64)
    ids[0, 12:], mask[0, 12:] = 0, 0
    with torch.no_grad():
        made = [torch.from_numpy(a) for a in (ids, mask, decoded)]
        want = theirs(input_ids=made[0], attention_mask=made[1], decoder_input_ids=made[2]).logits
        got = mine(input_ids=made[0], attention_mask=made[1], decoder_input_ids=made[2]).logits
    np.testing.assert_allclose(got, want, atol=5e-6)  # their norms and their softmax are float32, whatever the model is
    session = seqspec.Session(seqspec.to_onnx(T5, tmp_path / "t5", weights=weights))
    inputs = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": decoded[:, :9]}
    first = session.run(inputs)
    rest = session.run({"decoder_input_ids": decoded[:, 9:]}, first.state)
    filed = np.concatenate([first["logits"], rest["logits"]], 1)
    assert np.abs(filed - got.numpy()).max() < 2e-6 * np.abs(got.numpy()).max()


@pytest.mark.parametrize("asked", [{}, {"early_stopping": True}, {"length_penalty": -1.0, "early_stopping": "never"}])
def test_t5_finds_the_texts_that_transformers_finds(asked: dict[str, Any], tmp_path: Path) -> None:
    """Four beams over sources of different lengths, with an end that is common enough to come."""
    theirs, weights = t5()
    weights = {name: weight * (8 if name == "head.weight" else 1) for name, weight in weights.items()}
    theirs.lm_head.weight = torch.nn.Parameter(weights["head.weight"])  # not the table of tokens too
    sources = [[3, 9, 27, 5, 1], [8, 2], [30, 7, 4, 4, 17, 6, 11]]
    ids, mask = torch.zeros(3, 7, dtype=torch.long), torch.zeros(3, 7, dtype=torch.long)
    for n, row in enumerate(sources):
        ids[n, : len(row)], mask[n, : len(row)] = torch.tensor(row), 1
    wanted: dict[str, Any] = {"num_beams": 4, "num_return_sequences": 3, "max_new_tokens": 9, **asked}
    # without a cache: theirs has as many layers as the encoder
    given = {"attention_mask": mask, "do_sample": False, "use_cache": False, **wanted}
    eos = int(theirs.generate(ids, eos_token_id=None, **given)[0, 4])
    want = theirs.generate(ids, eos_token_id=eos, pad_token_id=eos, **given)
    module = seqspec.to_torch(T5, weights=weights).double().eval()
    session = seqspec.Session(seqspec.to_onnx(T5, tmp_path / "t5", weights=weights))
    for runner in (module, session):
        found = seqspec.generate(runner, sources, decoder_start_id=0, eos_id=eos, **wanted).reshape(9, -1)
        np.testing.assert_array_equal(found, want[:, 1:])


def t5_names(ours: dict[str, Any]) -> list[tuple[str, str]]:
    """(name here, name there)"""
    parts = {
        "attention.q_proj": "0.SelfAttention.q", "attention.k_proj": "0.SelfAttention.k",
        "attention.v_proj": "0.SelfAttention.v", "attention.o_proj": "0.SelfAttention.o",
        "attention_norm": "0.layer_norm", "cross_attention.q_proj": "1.EncDecAttention.q",
        "cross_attention.k_proj": "1.EncDecAttention.k", "cross_attention.v_proj": "1.EncDecAttention.v",
        "cross_attention.o_proj": "1.EncDecAttention.o", "cross_attention_norm": "1.layer_norm",
        "ffn.gate_proj": "F.DenseReluDense.wi_0", "ffn.up_proj": "F.DenseReluDense.wi_1",
        "ffn.down_proj": "F.DenseReluDense.wo", "ffn_norm": "F.layer_norm",
    }  # fmt: skip
    found = []
    for name in ours:
        stack, _, rest = name.partition(".")
        if rest.startswith("layers."):
            _, number, part = rest.split(".", 2)
            there = parts[part.removesuffix(".weight")].replace("F", "1" if stack == "encoder" else "2")
            found.append((name, f"{stack}.block.{number}.layer.{there}.weight"))
        elif rest == "embed_relative.weight":
            found.append((name, f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"))
        else:
            there = {"encoder.embed_tokens.weight": "shared.weight", "head.weight": "lm_head.weight"}
            found.append((name, there.get(name, f"{stack}.final_layer_norm.weight")))
    return found


# ---- rotary scalings ---------------------------------------------------------------------------------------------

LONG = {"short_factor": [1.0 + n / 8 for n in range(8)], "long_factor": [2.0 + n for n in range(8)]}
SHARP = {"beta_fast": 4.0, "beta_slow": 0.5, "truncate": False}
SCALINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"kind": "dynamic", "factor": 2.5, "original_max_length": 16}, {"rope_type": "dynamic", "factor": 2.5}),
    ({"kind": "yarn", "factor": 4.0, "original_max_length": 16}, {"rope_type": "yarn", "factor": 4.0}),
    (
        {"kind": "yarn", "factor": 8.0, "original_max_length": 16, **SHARP},
        {"rope_type": "yarn", "factor": 8.0, **SHARP},
    ),
    (
        {"kind": "yarn", "factor": 8.0, "original_max_length": 16, "attention_factor": 1.25},
        {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.25},
    ),
    (
        {"kind": "longrope", "factor": 4.0, "original_max_length": 16, **LONG},
        {"rope_type": "longrope", "factor": 4.0, **LONG},
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), SCALINGS, ids=lambda p: p.get("kind", ""))
@pytest.mark.parametrize("length", [5, 16, 17, 40])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_scalings_are_transformers(ours: dict[str, Any], theirs: dict[str, Any], length: int, fraction: float) -> None:
    head_dim = int(16 / fraction)
    parameters = {"rope_theta": 10000.0, "original_max_position_embeddings": 16, "partial_rotary_factor": fraction}
    config = LlamaConfig(
        hidden_size=head_dim, num_attention_heads=1, max_position_embeddings=16, rope_parameters=parameters | theirs
    )
    config.partial_rotary_factor = fraction
    frequencies, factor = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, "cpu", seq_len=length)
    want = np.arange(length)[:, None] * frequencies.double().numpy()
    cos, sin = tables(ours, head_dim, fraction, np.arange(length)[None])
    # their frequencies are float32
    np.testing.assert_allclose(cos[0], factor * np.cos(want), atol=2e-5)
    np.testing.assert_allclose(sin[0], factor * np.sin(want), atol=2e-5)


def tables(scaling: dict[str, Any], head_dim: int, fraction: float, positions: Array) -> tuple[Array, Array]:
    position = {"kind": "rope", "fraction": fraction, "scaling": scaling}
    layer = {"kind": "attention", "heads": 1, "head_dim": head_dim, "position": position}
    encoder = {"input": {"kind": "features", "size": 4}, "d_model": 4, "layers": [{"block": [layer]}]}
    spec = seqspec.load({"seqspec": 1, "name": "turned", "encoder": encoder}).resolved()
    assert spec.encoder is not None
    (op,) = [a.tables_key for a in spec.encoder.attentions()]
    assert isinstance(op, RopeTables)
    cos, sin = op.reference(np, {}, positions, np.zeros(()))
    return cos, sin


@pytest.mark.parametrize(("ours", "theirs"), [SCALINGS[0], SCALINGS[4]], ids=["dynamic", "longrope"])
def test_each_row_goes_by_its_own_length(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    positions = np.stack([np.arange(24), np.minimum(np.arange(24), 9)])
    for whole, alone in zip(tables(ours, 16, 1.0, positions), tables(ours, 16, 1.0, positions[1:, :10]), strict=True):
        np.testing.assert_allclose(whole[1, :10], alone[0])
        assert not np.allclose(whole[0, :10], alone[0], atol=1e-2)


@pytest.mark.parametrize("scaling", [SCALINGS[0][0], SCALINGS[4][0]], ids=["dynamic", "longrope"])
def test_steps_equal_the_whole_up_to_the_length_of_training_and_a_check_says_so(scaling: dict[str, Any]) -> None:
    layer = f"{{kind: attention, heads: 1, head_dim: 16, position: {{kind: rope, scaling: {scaling}}}}}"
    one = OneLayer(layer.replace("'", ""), "decoder")
    (found,) = seqspec.check(one.text)
    assert (found.code, found.severity) == ("SEQ238", "warning")
    assert not len(seqspec.check(OneLayer(layer.replace("'", ""), "encoder").text))
    for length, same in ((16, True), (17, False)):
        x = features(2, length)
        whole, state = one.run({"features": x})[0], None
        for stop in range(1, length + 1):
            out = one.run({"features": x[:, stop - 1 : stop]}, state)
            state = out.state
        assert torch.allclose(out[0][:, 0], whole[:, -1], atol=1e-12) == same


def test_a_folder_is_verified_in_steps_as_far_as_steps_are_the_whole(tmp_path: Path) -> None:
    scaling = "{kind: dynamic, factor: 4, original_max_length: 4}"  # fewer than the sequences of a verification
    position = f"{{kind: rope, scaling: {scaling}}}"
    one = OneLayer(f"{{kind: attention, heads: 1, head_dim: 16, position: {position}}}", "decoder")
    inputs = {"features": features(2, T)}
    filed = one.session(tmp_path).run(single(inputs))["last_hidden_state"]
    np.testing.assert_allclose(filed, one.run(inputs)[0], atol=2e-6)


# ---- permutations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layer", ["attention, heads: 3", "attention, heads: 3, projections: none", "linear_attention, heads: 3"]
)
def test_without_positions_an_order_does_not_matter(layer: str) -> None:
    one = OneLayer(f"{{kind: {layer}}}")
    x, order = features(2, T), np.random.default_rng(0).permutation(T)
    np.testing.assert_allclose(one.layer({"features": x[:, order]}), one.layer({"features": x})[:, order], atol=1e-12)
    placed = OneLayer("{kind: attention, heads: 3, position: alibi}")
    moved = placed.layer({"features": x[:, order]})
    assert not np.allclose(moved, placed.layer({"features": x})[:, order], atol=1e-3)


# ---- what a check finds ------------------------------------------------------------------------------------------

ROPE = "{kind: attention, heads: 3, position: {kind: rope, scaling: {SCALING, original_max_length: 8}}}"
LONGROPE = "kind: longrope, short_factor: [1, 1], long_factor: [1, 2]"


@pytest.mark.parametrize(
    ("layer", "codes"),
    [
        ("{kind: attention, heads: 3, position: {kind: relative_bias, buckets: 7}}", ["SEQ106"]),
        ("{kind: attention, heads: 3, position: {kind: relative_bias, max_distance: 8}}", ["SEQ106"]),
        (ROPE.replace("SCALING", "kind: yarn, factor: 2, beta_fast: 1"), ["SEQ106"]),
        (ROPE.replace("SCALING", LONGROPE.replace("[1, 1]", "[1]")), ["SEQ109"]),
        (ROPE.replace("SCALING", f"{LONGROPE}, factor: 2, attention_factor: 1.1"), ["SEQ110"]),
        ("{kind: attention, heads: 3, projections: none, bias: true}", ["SEQ232"]),
        ("{kind: attention, heads: 3, projections: none, head_dim: 5}", ["SEQ204"]),
        ("{kind: attention, heads: 3, projections: none, kv_heads: 1}", ["SEQ202"]),
        ("{kind: attention, heads: 3, projections: none, value_dim: 2}", ["SEQ204"]),
    ],
)
def test_what_does_not_go_together(layer: str, codes: list[str]) -> None:
    with pytest.raises(seqspec.SpecError) as caught:
        OneLayer(layer)
    assert [d.code for d in caught.value.diagnostics] == codes


@pytest.mark.parametrize("position", ["alibi", "relative_bias", "rope"])
def test_a_position_of_attention_needs_one(position: str) -> None:
    text = OneLayer("{kind: linear_attention, heads: 3}").text
    with pytest.raises(seqspec.SpecError) as caught:
        seqspec.load(text.replace("  d_model", f"  position: {position}\n  d_model"))
    assert [d.code for d in caught.value.diagnostics] == ["SEQ234"]
