"""Blocks: residuals left out, scaled and shared, against their equations in NumPy and against transformers' GPT-J."""

from __future__ import annotations

import re
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPTJConfig, GPTJForCausalLM

import seqspec

Array = np.ndarray
EXAMPLE = Path(__file__).parents[2] / "examples/gpt-j-6b.yaml"
SMALL = [
    "decoder.d_model=32",
    "decoder.input.vocab_size=61",
    "decoder.layers[0].repeat=2",
    "decoder.layers[0].block[0].block[0].heads=2",
    "decoder.layers[0].block[0].block[1].d_ff=40",
]
RENAMED = (
    (r"^transformer\.wte", "decoder.embed_tokens"),
    (r"^transformer\.h\.", "decoder.layers."),
    (r"^transformer\.ln_f", "decoder.final_norm"),
    (r"ln_1", "parallel_norm"),
    (r"attn\.out_proj", "parallel.attention.o_proj"),
    (r"attn\.", "parallel.attention."),
    (r"mlp\.fc_in", "parallel.ffn.up_proj"),
    (r"mlp\.fc_out", "parallel.ffn.down_proj"),
    (r"^lm_head", "head"),
)


def test_it_is_gpt_j(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_inner": 40, "rotary_dim": 4}
    config = GPTJConfig(**sizes, n_positions=32, bos_token_id=1, eos_token_id=2)
    theirs = GPTJForCausalLM(config).double().eval()
    known = {}
    for name, tensor in theirs.state_dict().items():
        tensor.add_(torch.randn_like(tensor) * 0.1)
        for pattern, new in RENAMED:
            name = re.sub(pattern, new, name)
        known[name] = tensor
    spec = seqspec.load(EXAMPLE, SMALL)
    model = seqspec.to_torch(spec).double().eval()
    model.load_state_dict({name: known[name] for name in model.state_dict()})
    ids = torch.tensor([[5, 9, 60, 3, 2, 8], [7, 1, 4, 4, 4, 0]])
    with torch.no_grad():
        want, whole = theirs(ids).logits, model(input_ids=ids)
        first = model(input_ids=ids[:, :4])
        rest = model(input_ids=ids[:, 4:], state=first.state)
    # theirs has angles and scores in float32, whatever the rest is in
    torch.testing.assert_close(whole.logits, want, atol=1e-7, rtol=0)
    torch.testing.assert_close(torch.cat([first.logits, rest.logits], 1), whole.logits, atol=1e-12, rtol=0)

    single = {name: known[name].float().numpy() for name in model.state_dict()}
    session = seqspec.Session(seqspec.to_onnx(spec, tmp_path / "out", weights=single))
    assert "past_key_values.1.key" in session.state_names
    made = session.run({"input_ids": ids.numpy()})["logits"]
    np.testing.assert_allclose(made, want.numpy(), atol=4e-6 * float(want.abs().max()))


# ---- equations -------------------------------------------------------------------------------------------------------


ACTIVATIONS: dict[str, Any] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "gelu": lambda x: x * (1 + np.vectorize(erf)(x / sqrt(2))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def ffn(weights: dict[str, Array], name: str, x: Array, activation: str = "gelu", gated: bool = False) -> Array:
    def linear(part: str, y: Array) -> Array:
        return y @ weights[f"{name}.{part}.weight"].T + weights[f"{name}.{part}.bias"]

    act = ACTIVATIONS[activation]
    inner = act(linear("gate_proj", x)) * linear("up_proj", x) if gated else act(linear("up_proj", x))
    return linear("down_proj", inner)


def layer_norm(weights: dict[str, Array], name: str, x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return y * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def both(block: list[dict[str, Any]], tmp_path: Path, **stack: Any) -> tuple[dict[str, Array], Array, list[Array]]:
    """Weights of the layer, what enters it, and what PyTorch in float64 and onnxruntime make of that."""
    source = {"input": {"kind": "features", "size": 6}, "d_model": 6, "final_norm": False}
    spec = {"seqspec": 1, "name": "x", "encoder": source | stack | {"layers": [{"block": block}]}}
    model = seqspec.to_torch(spec, seed=1)
    random = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=random) * 0.3)
    x = torch.randn(2, 5, 6, generator=random)
    with torch.no_grad():
        session = seqspec.Session(seqspec.to_onnx(spec, tmp_path / "out", weights=model.state_dict()))
        made = session.run({"features": x.numpy()})["last_hidden_state"]
        out = model.double().eval()(features=x.double()).last_hidden_state.numpy()
    known = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    entered = x.double().numpy() @ known["encoder.input_proj.weight"].T + known["encoder.input_proj.bias"]
    return {n.removeprefix("encoder.layers.0."): w for n, w in known.items()}, entered, [out, made]


def agree(found: list[Array], want: Array) -> None:
    np.testing.assert_allclose(found[0], want, atol=1e-10)
    np.testing.assert_allclose(found[1], want, atol=4e-6 * max(1.0, float(np.abs(want).max())))


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "none"])
@pytest.mark.parametrize("residual", ["add", "none"])
def test_a_residual_is_scaled_or_left_out(placement: str, residual: str, tmp_path: Path) -> None:
    block = [{"kind": "ffn", "d_ff": 7, "residual": residual}]
    w, x, found = both(block, tmp_path, norm_placement=placement, residual_scale=1.7)
    kept = 1.7 * x if residual == "add" else 0
    match placement:
        case "pre":
            want = kept + ffn(w, "ffn", layer_norm(w, "ffn_norm", x))
        case "post":
            want = layer_norm(w, "ffn_norm", kept + ffn(w, "ffn", x))
        case "none":
            want = kept + ffn(w, "ffn", x)
        case _:
            want = kept + layer_norm(w, "post_ffn_norm", ffn(w, "ffn", layer_norm(w, "ffn_norm", x)))
    agree(found, want)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_parallel_sublayers_read_one_input(placement: str, tmp_path: Path) -> None:
    inner = [{"kind": "ffn", "name": name, "d_ff": 4, "activation": "relu"} for name in ("one", "two", "three")]
    w, x, found = both([{"kind": "parallel", "name": "p", "block": inner}], tmp_path, norm_placement=placement)
    read = layer_norm(w, "p_norm", x) if placement == "pre" else x
    total = x + sum(ffn(w, f"p.{name}", read, "relu") for name in ("one", "two", "three"))
    agree(found, total if placement == "pre" else layer_norm(w, "p_norm", total))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_feed_forwards(activation: str, gated: bool, tmp_path: Path) -> None:
    block = [{"kind": "ffn", "d_ff": 7, "activation": activation, "gated": gated}]
    w, x, found = both(block, tmp_path, norm_placement="post")
    agree(found, layer_norm(w, "ffn_norm", x + ffn(w, "ffn", x, activation, gated)))


def test_rms_norm_with_a_unit_offset(tmp_path: Path) -> None:
    block = [{"kind": "ffn", "d_ff": 7}]
    w, x, found = both(block, tmp_path, norm={"kind": "rmsnorm", "offset": 1, "eps": 1e-3}, norm_placement="pre")
    normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * (1 + w["ffn_norm.weight"])
    agree(found, x + ffn(w, "ffn", normed))


def test_an_offset_norm_starts_as_a_plain_one() -> None:
    layers = [{"block": [{"kind": "ffn", "d_ff": 7}]}]
    source = {"input": {"kind": "features", "size": 6}, "d_model": 6, "layers": layers}
    outputs = []
    for offset in (0, 1):
        spec = {"seqspec": 1, "name": "x", "encoder": source | {"norm": {"kind": "rmsnorm", "offset": offset}}}
        outputs.append(seqspec.to_torch(spec, seed=4)(features=torch.ones(1, 3, 6)).last_hidden_state)
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-6, rtol=0)


def test_deepnorm_starts_values_outputs_and_feed_forwards_small() -> None:
    """beta scales them alone: Wang et al. 2022, section 3."""
    block = [{"kind": "attention", "heads": 2}, {"kind": "ffn", "d_ff": 8, "gated": True}]
    encoder = {"input": {"kind": "tokens", "vocab_size": 9}, "d_model": 8, "layers": [{"block": block}]}
    spec = {"seqspec": 1, "name": "x", "encoder": encoder}
    plain = seqspec.to_torch(spec, seed=3).state_dict()
    scaled = seqspec.to_torch(spec | {"encoder": encoder | {"init_scale": 0.25}}, seed=3).state_dict()
    for name, tensor in plain.items():
        small = "_proj." in name and "q_proj" not in name and "k_proj" not in name
        torch.testing.assert_close(scaled[name], tensor * 0.25 if small else tensor, atol=0, rtol=1e-6)
