"""Cases 28, 33, 34, 40: tied tables, dropout and modes, norms and activations, a padded encoder, from spec to numbers.

Of case 34 (c), the language has one order in bfloat16, that rounds once; rounding before the scale has no key.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from end_to_end import PLAIN_NORM, Both, agree, close, gen, in_torch, named, torch_step

import seqspec

TIED = """
decoder:
  input: {{kind: tokens, vocab_size: {rows}}}
  d_model: {width}
  final_norm: false
  layers: [{{kind: linear, size: {width}, bias: false}}]
head: {{kind: lm, tied: true}}
"""


def tied(rows: int, width: int) -> tuple[str, dict[str, Any]]:
    weights = {"decoder.embed_tokens.weight": gen((rows, width), 1), "decoder.layers.0.linear.weight": np.eye(width)}
    return TIED.format(rows=rows, width=width), weights


def test_28_logits_through_the_embedding(tmp_path: Path) -> None:
    spec, weights = tied(10, 4)
    want = [
        [
            -1.23170866, 1.79153153, -2.14417007, 2.24907459, -2.09408421,
            1.6972035, -1.10414176, 0.38344062, 0.38153202, -1.1023485,
        ],
        [
            1.25314906, -0.77537795, 0.20797684, 0.38344062, -0.93057792,
            1.37016974, -1.65148408, 1.7419621, -1.63106256, 1.33161789,
        ],
    ]  # fmt: skip
    both = Both(spec, weights, tmp_path)
    for out in both.run({"input_ids": np.array([[3, 7]])}):
        agree(out["logits"][0], want)
    assert sum(p.numel() for p in both.model.parameters()) == 40 + 16
    table = "decoder.embed_tokens.weight"
    both.model.load_state_dict(both.model.state_dict() | {table: 2 * both.model.state_dict()[table]})
    doubled, _ = torch_step(both.model, {"input_ids": np.array([[3, 7]])})
    agree(doubled["logits"][0], 4 * np.array(want), not_=want)


def test_28_one_copy_beside_the_model_wherever_it_is_moved(tmp_path: Path) -> None:
    spec, weights = tied(1000, 16)
    both = Both(spec, weights, tmp_path)
    model = onnx.load(both.path / "model.onnx", load_external_data=False)
    sizes = [int(np.prod(t.dims)) for t in model.graph.initializer]
    assert sizes.count(16000) == 1
    assert all(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer if len(t.dims) == 2)
    assert sum(file.stat().st_size for file in both.path.iterdir() if file.suffix != ".json") < 80000
    moved = tmp_path / "elsewhere"
    shutil.move(both.path, moved)
    onnx.checker.check_model(str(moved / "model.onnx"), full_check=True)
    ids = np.array([[3, 999]])
    agree(seqspec.Session(moved).run({"input_ids": ids})["logits"], both.run({"input_ids": ids})[0]["logits"])


DROPPING = """
encoder:
  input: {kind: features, size: 4}
  d_model: 4
  dropout: {input: 0.5, residual: 0.5}
  norm_placement: none
  layers: [{block: [{kind: ffn, d_ff: 4, activation: none, residual: none}]}]
"""


def test_33_a_model_left_in_training_exports_without_dropout(tmp_path: Path) -> None:
    x = gen((2, 4), 3)[None]
    want = [[-1.37643664, 1.87133631, -3.02219368], [1.86335144, -2.19318967, 1.39704662]]
    layer = "encoder.layers.0.ffn"  # up: the linear map and a row of zeros, down: the identity
    weights = {f"{layer}.up_proj.weight": np.zeros((4, 4)), f"{layer}.up_proj.bias": np.zeros(4)}
    weights[f"{layer}.up_proj.weight"][:3], weights[f"{layer}.up_proj.bias"][:3] = gen((3, 4), 1), gen((3,), 2)
    model = in_torch(DROPPING, weights | {f"{layer}.down_proj.weight": np.eye(4)})
    agree(torch_step(model, {"features": x})[0]["last_hidden_state"][0, :, :3], want)
    model.train()
    drawn = [torch_step(model, {"features": x})[0]["last_hidden_state"] for _ in range(8)]
    assert any(not close(y[0, :, :3], want) for y in drawn)
    path = seqspec.to_onnx(named(DROPPING), tmp_path / "out", weights=model.state_dict())
    assert model.training
    session = seqspec.Session(path)
    runs = [session.run({"features": x.astype(np.float32)})["last_hidden_state"] for _ in range(2)]
    agree(runs[0][0, :, :3], want)
    assert np.array_equal(*runs)
    kinds = {node.op_type for node in onnx.load(path / "model.onnx", load_external_data=False).graph.node}
    assert not [kind for kind in kinds if "Dropout" in kind or "Random" in kind]


def test_33_dropout_that_would_do_nothing() -> None:
    layers = "encoder: {input: {kind: features, size: 2}, layers: [{kind: lstm, hidden_size: 2, dropout: 0.5}]}"
    with pytest.raises(seqspec.SpecError, match="dropout"):
        seqspec.load(named(layers))


@pytest.mark.parametrize(("rate", "fine"), [("1.5", False), ("-0.1", False), ("0", True), ("1.0", False)])
def test_33_rates(rate: str, fine: bool) -> None:
    assert seqspec.check(named(DROPPING.replace("0.5", rate))).has_errors != fine


def normed(norm: str) -> str:
    return f"""
encoder:
  input: {{kind: features, size: 4}}
  d_model: 4
  final_norm: {norm}
  layers: [{{kind: linear, size: 4, bias: false}}]
"""


FLAT, WIDE = [1, 1.002, 0.998, 1], [1, -2, 3, 0.5]
SMALL_EPS, LARGE_EPS = [0, 1.414213209, -1.414213209, 0], [0, 0.5773502692, -0.5773502692, 0]
SCALED = [0.21055839, -2.94781746, 1.33353647, -0.07018613]
UNSCALED = [0.21055839, -1.47390873, 1.33353647, -0.07018613]
FULL, LESS_ONE = [8.907478851, -1.165588311, 1.271550884, 0.2649064342], [8.377665983, -0.1059625737, -0.3178877211, 0]


@pytest.mark.parametrize(
    ("norm", "x", "scale", "want", "wrong"),
    [
        ("{kind: layernorm, eps: 1e-5, bias: false}", FLAT, 1, LARGE_EPS, SMALL_EPS),
        ("{kind: layernorm, eps: 1e-12, bias: false}", FLAT, 1, SMALL_EPS, LARGE_EPS),
        ("{kind: layernorm, eps: 1e-5, bias: false}", WIDE, [1, 2, 1, 1], SCALED, UNSCALED),
        ("{kind: rmsnorm, eps: 1e-6}", WIDE, [16.8125, 1.1, 0.8, 1], FULL, LESS_ONE),
        ("{kind: rmsnorm, eps: 1e-6, offset: 1}", WIDE, [15.8125, 0.1, -0.2, 0], FULL, LESS_ONE),
    ],
)
def test_34_norms(norm: str, x: Any, scale: Any, want: Any, wrong: Any, tmp_path: Path) -> None:
    weights = {"encoder.layers.0.linear.weight": np.eye(4), "encoder.final_norm.weight": np.ones(4) * scale}
    both = Both(normed(norm), weights, tmp_path)
    held = {name: p.numel() for name, p in both.model.named_parameters() if "norm" in name}
    assert held == {"encoder.final_norm.weight": 4}
    graph = onnx.load(both.path / "model.onnx", load_external_data=False).graph
    assert not [tensor.name for tensor in graph.initializer if "norm.bias" in tensor.name]
    # float32 cannot hold 1.002 to more than 6e-8, of a spread of 2e-3
    for out in both.run({"features": np.array([[x]], np.float64)}):
        agree(out["last_hidden_state"][0, 0], want, not_=wrong, tolerance=5e-5 if x is FLAT else 1e-5)
    exact = torch_step(both.model.double(), {"features": np.array([[x]], np.float64)})[0]
    agree(exact["last_hidden_state"][0, 0], want, not_=wrong, tolerance=1e-7)


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_34_eps_that_half_precision_cannot_hold(kind: str, tmp_path: Path) -> None:
    """1e-8 is 0 in float16, and 0 / √0 would be NaN."""
    spec, x = normed(f"{{kind: {kind}, eps: 1e-8}}"), np.zeros((1, 2, 4))
    weights = {"encoder.layers.0.linear.weight": np.eye(4), "encoder.final_norm.weight": np.ones(4)}
    model = in_torch(spec, weights).to(torch.float16)
    session = Both(spec, weights, tmp_path, dtype="float16").session
    for out in (torch_step(model, {"features": x})[0], session.run({"features": x.astype(np.float16)})):
        assert not np.asarray(out["last_hidden_state"]).any()  # NaN counts as true


@pytest.mark.parametrize(("norm", "less"), [("rmsnorm", 0), ("{kind: rmsnorm, offset: 0.5}", 0.5)])
def test_34_a_scale_is_multiplied_before_bfloat16_is_rounded(norm: str, less: float) -> None:
    x, scale = [0.30078125, -1.703125, 2.90625, 0.6015625], np.array([1.1015625, 0.8984375, 1.296875, 0.69921875])
    weights = {"encoder.layers.0.linear.weight": np.eye(4), "encoder.final_norm.weight": scale - less}
    model = in_torch(normed(norm), weights).to(torch.bfloat16)
    out, _ = torch_step(model, {"features": np.array([[x]])})
    rounded_first = [0.1923828125, -0.890625, 2.203125, 0.244140625]
    agree(
        out["last_hidden_state"][0, 0], [0.193359375, -0.890625, 2.1875, 0.2451171875], not_=rounded_first, tolerance=0
    )


GELU = {
    "gelu": [
        -0.004049694095, -0.0455002639, -0.1586552539, -0.1542687694, 0.0,
        0.3457312306, 0.8413447461, 1.954499736, 2.995950306,
    ],
    "gelu_tanh": [
        -0.003637392082, -0.04540230591, -0.1588080094, -0.1542859902, 0.0,
        0.3457140098, 0.8411919906, 1.954597694, 2.996362608,
    ],
}  # fmt: skip


@pytest.mark.parametrize("activation", GELU)
def test_34_two_forms_of_gelu(activation: str, tmp_path: Path) -> None:
    x = np.array([-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3])[None, :, None]
    spec = f"""
encoder:
  input: {{kind: features, size: 1}}
  d_model: 1
  norm: {PLAIN_NORM}
  final_norm: false
  layers: [{{block: [{{kind: ffn, d_ff: 1, activation: {activation}}}]}}]
"""
    layer = "encoder.layers.0.ffn"
    both = Both(spec, {f"{layer}.up_proj.weight": [[1]], f"{layer}.down_proj.weight": [[1]]}, tmp_path)
    other = GELU["gelu_tanh" if activation == "gelu" else "gelu"]
    for out in both.run({"features": x}):
        agree((out["last_hidden_state"] - x)[0, :, 0], GELU[activation], not_=other, tolerance=1e-6)


def test_40_a_padded_encoder_in_both_modes(tmp_path: Path) -> None:
    spec = """
encoder:
  input: {kind: features, size: 4}
  d_model: 4
  norm: layernorm
  norm_placement: post
  dropout: 0
  layers: [{block: [{kind: attention, heads: 2}, {kind: ffn, d_ff: 8, activation: relu}]}]
"""
    layer = "encoder.layers.0"
    maps, shifts = gen((12, 4), 1, 0.6).reshape(3, 4, 4), gen((12,), 2, 0.2).reshape(3, 4)
    weights = {f"{layer}.attention.{p}_proj.weight": maps[n] for n, p in enumerate("qkv")}
    weights |= {f"{layer}.attention.{p}_proj.bias": shifts[n] for n, p in enumerate("qkv")}
    weights[f"{layer}.attention.o_proj.weight"] = gen((4, 4), 3, 0.6)
    weights[f"{layer}.attention.o_proj.bias"] = gen((4,), 4, 0.2)
    weights |= {f"{layer}.ffn.up_proj.weight": gen((8, 4), 5, 0.6), f"{layer}.ffn.up_proj.bias": gen((8,), 6, 0.2)}
    weights |= {f"{layer}.ffn.down_proj.weight": gen((4, 8), 7, 0.4), f"{layer}.ffn.down_proj.bias": gen((4,), 8, 0.2)}
    weights |= {f"{layer}.{name}_norm.weight": np.ones(4) for name in ("attention", "ffn")}
    x, real = gen((2, 5, 4), 9), np.array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    want = [
        [-1.41295856, -0.3328321653, 0.4434485359, 1.30234219],
        [1.143193008, 0.5886873952, -0.2152458339, -1.51663457],
        [-1.0727877, -0.7532389195, 0.3586934493, 1.46733317],
        [-1.628074281, 1.071165783, 0.1253666045, 0.4315418935],
        [1.035629495, -1.58886567, 0.6301012034, -0.07686502835],
    ]
    both = Both(spec, weights, tmp_path)
    inputs = {"features": x, "attention_mask": real}
    evaluated, in_onnx = (out["last_hidden_state"] for out in both.run(inputs))
    trained = torch_step(both.model.train(), inputs)[0]["last_hidden_state"]
    for y in (evaluated, in_onnx, trained):
        assert y.shape == (2, 5, 4)
        agree(y[real.astype(bool)], want, tolerance=1e-4)
        assert np.isfinite(y).all()
    assert np.array_equal(trained, evaluated)
    agree(in_onnx, evaluated)
