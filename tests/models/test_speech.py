"""Sound: Whisper's own implementation, torch's convolutions on frames without padding, and padding of every sort."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import WhisperConfig, WhisperForConditionalGeneration

import seqspec
from seqspec.diagnostics import RuntimeFault

EXAMPLE = Path(__file__).parents[2] / "examples/speech-to-text.yaml"
WIDTH, MELS, VOCABULARY = 24, 10, 61
SMALL = [
    f"defaults.d_model={WIDTH}",
    f"encoder.input.mel_bins={MELS}",
    *(f"encoder.input.convolutions[{n}].channels={WIDTH}" for n in range(2)),
    f"decoder.input.vocab_size={VOCABULARY}",
    "decoder.position.max_length=19",
    *(f"{stack}.layers[0].repeat=2" for stack in ("encoder", "decoder")),
    *(f"{stack}.layers[0].block[0].heads=3" for stack in ("encoder", "decoder")),
    "decoder.layers[0].block[1].heads=3",
    "encoder.layers[0].block[1].d_ff=40",
    "decoder.layers[0].block[2].d_ff=40",
]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# ---- Whisper ---------------------------------------------------------------------------------------------------------


RENAMED = (
    (r"^model\.", ""),
    (r"encoder\.conv1", "encoder.convolutions.0"),
    (r"encoder\.conv2", "encoder.convolutions.1"),
    (r"encoder\.layer_norm", "encoder.final_norm"),
    (r"decoder\.layer_norm", "decoder.final_norm"),
    (r"self_attn_layer_norm", "attention_norm"),
    (r"encoder_attn_layer_norm", "cross_attention_norm"),
    (r"final_layer_norm", "ffn_norm"),
    (r"self_attn", "attention"),
    (r"encoder_attn", "cross_attention"),
    (r"out_proj", "o_proj"),
    (r"fc1", "ffn.up_proj"),
    (r"fc2", "ffn.down_proj"),
)


@pytest.fixture(scope="module")
def whisper() -> WhisperForConditionalGeneration:
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=MELS,
        d_model=WIDTH,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=40,
        decoder_ffn_dim=40,
        max_source_positions=8,
        max_target_positions=19,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = WhisperForConditionalGeneration(config).double().eval()
    for parameter in model.parameters():  # biases that are zero would hide that they are read
        parameter.requires_grad_(False).add_(torch.randn_like(parameter) * 0.1)
    model.model.encoder.embed_positions.weight.copy_(sinusoids(8, WIDTH))
    return model


def sinusoids(length: int, channels: int) -> torch.Tensor:
    """As in OpenAI's whisper/model.py."""
    increment = np.log(10000) / (channels // 2 - 1)
    scaled = np.arange(length)[:, None] * np.exp(-increment * np.arange(channels // 2))[None]
    return torch.from_numpy(np.concatenate([np.sin(scaled), np.cos(scaled)], 1))


def weights(whisper: WhisperForConditionalGeneration) -> dict[str, torch.Tensor]:
    found = {}
    for old, tensor in whisper.state_dict().items():
        name = old
        for pattern, new in RENAMED:
            name = re.sub(pattern, new, name)
        found[name] = tensor
    del found["encoder.embed_positions.weight"], found["proj_out.weight"]
    return found


def test_it_is_whisper(whisper: WhisperForConditionalGeneration, tmp_path: Path) -> None:
    known = weights(whisper)
    model = seqspec.to_torch(seqspec.load(EXAMPLE, SMALL)).double().eval()
    model.load_state_dict({k.replace("embed_positions.weight", "embed_positions.weight"): v for k, v in known.items()})
    frames, ids = random(2, MELS, 16), np.array([[1, 5, 9, 60], [1, 2, 3, 4]])
    with torch.no_grad():
        want = whisper(input_features=torch.from_numpy(frames), decoder_input_ids=torch.from_numpy(ids)).logits
        got = model(input_features=torch.from_numpy(frames), decoder_input_ids=torch.from_numpy(ids)).logits
    torch.testing.assert_close(got, want, atol=1e-10, rtol=0)

    single = {name: tensor.float().numpy() for name, tensor in known.items()}
    session = seqspec.Session(seqspec.to_onnx(seqspec.load(EXAMPLE, SMALL), tmp_path / "out", weights=single))
    heard = session.run({"input_features": frames.astype(np.float32), "decoder_input_ids": ids})["logits"]
    np.testing.assert_allclose(heard, want.numpy(), atol=4e-6 * float(want.abs().max()))


def test_sizes_in_the_file_follow_the_strides(tmp_path: Path) -> None:
    session = seqspec.Session(seqspec.to_onnx(seqspec.load(EXAMPLE, SMALL), tmp_path / "out"))
    ports = {port.name: list(map(str, port.shape)) for port in session.inputs}
    assert ports["input_features"] == ["batch_size", str(MELS), "encoder_sequence_length"]
    assert ports["attention_mask"] == ["batch_size", "encoder_sequence_length"]
    held = {state.past: list(map(str, state.shape)) for state in session.signature.states}
    half = "ceil((encoder_sequence_length) / 2)"
    assert held["encoder_attention_mask"] == ["batch_size", half]
    assert held["past_key_values.1.encoder.key"] == ["batch_size", "3", half, "8"]


# ---- convolutions and padding ----------------------------------------------------------------------------------------


def spec(convolutions: list[dict[str, Any]], **stack: Any) -> dict[str, Any]:
    source = {"kind": "audio", "mel_bins": 4, "convolutions": convolutions}
    layers = stack.pop("layers", [{"kind": "linear", "size": convolutions[-1]["channels"]}])
    return {"seqspec": 1, "name": "heard", "encoder": {"input": source, "layers": layers, **stack}}


FRONTS = [
    [
        {"channels": 5, "kernel": 3, "activation": "gelu"},
        {"channels": 6, "kernel": 3, "stride": 2, "activation": "gelu"},
    ],
    [{"channels": 5, "kernel": 5, "stride": 3, "activation": "tanh"}, {"channels": 3, "kernel": 7, "stride": 2}],
    [{"channels": 5, "kernel": 1, "bias": False}, {"channels": 5, "kernel": 9, "activation": "relu"}],
    [{"channels": 2, "kernel": 3, "stride": 4}],
]
ACTIVATIONS = {"gelu": nn.functional.gelu, "tanh": torch.tanh, "relu": torch.relu, "none": lambda x: x}


def by_torch(convolutions: list[dict[str, Any]], known: dict[str, torch.Tensor], frames: np.ndarray) -> np.ndarray:
    """[mel_bins, T] without padding -> [T', channels], by nn.Conv1d."""
    x, width = torch.from_numpy(frames)[None], len(frames)
    for n, one in enumerate(convolutions):
        bias = one.get("bias", True)
        half = one["kernel"] // 2
        layer = nn.Conv1d(width, one["channels"], one["kernel"], one.get("stride", 1), half, bias=bias).double()
        layer.load_state_dict({k: known[f"encoder.convolutions.{n}.{k}"] for k in layer.state_dict()})
        x, width = ACTIVATIONS[one.get("activation", "none")](layer(x)), one["channels"]
    x = x[0].T @ known["encoder.layers.0.linear.weight"].T + known["encoder.layers.0.linear.bias"]
    return x.detach().numpy()


def scattered(rows: list[np.ndarray], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """[mel_bins, T] of several lengths in one batch, NaN at padding, and its mask."""
    longest = max(row.shape[1] for row in rows) + 2
    table, mask = np.full((len(rows), len(rows[0]), longest), np.nan), np.zeros((len(rows), longest), np.int64)
    for n, row in enumerate(rows):
        length = row.shape[1]
        places = {"right": np.arange(length), "left": np.arange(longest - length, longest)}
        holes = np.sort(np.random.default_rng(n).permutation(longest)[:length])
        at = places.get(kind, holes)
        table[n][:, at], mask[n, at] = row, 1
    return table, mask


@pytest.mark.parametrize(("front", "kind"), [*product(FRONTS, ["right", "left", "holes"])])
def test_convolutions_see_zeros_around_the_real_frames(front: list[dict[str, Any]], kind: str, tmp_path: Path) -> None:
    model = seqspec.to_torch(spec(front), seed=1).double().eval()
    rows = [random(4, length, seed=length) for length in (1, 2, 5, 8, 13)]
    table, mask = scattered(rows, kind)
    with torch.no_grad():
        out = model(input_features=torch.from_numpy(table), attention_mask=torch.from_numpy(mask)).last_hidden_state
    session = seqspec.Session(seqspec.to_onnx(spec(front), tmp_path / "out", weights=model.float().state_dict()))
    made = session.run({"input_features": table.astype(np.float32), "attention_mask": mask})["last_hidden_state"]
    known = {name: tensor.double() for name, tensor in model.state_dict().items()}
    for n, row in enumerate(rows):
        want = by_torch(front, known, row)
        np.testing.assert_allclose(out[n, : len(want)].numpy(), want, atol=1e-7)
        np.testing.assert_allclose(made[n, : len(want)], want, atol=4e-6)
    assert np.isfinite(out.numpy()).all()
    assert np.isfinite(made).all()


@pytest.mark.parametrize("pool", ["first", "last", "mean", "max"])
def test_a_pool_reads_what_is_left_of_the_real_frames(pool: str) -> None:
    head = {"head": {"kind": "embedding", "pool": pool}}
    model = seqspec.to_torch(spec(FRONTS[0], layers=[{"kind": "gru", "hidden_size": 3}]) | head).double().eval()
    rows = [random(4, length, seed=length) for length in (1, 6, 7)]
    table, mask = scattered(rows, "left")
    with torch.no_grad():
        got = model(input_features=torch.from_numpy(table), attention_mask=torch.from_numpy(mask)).embedding
        for n, row in enumerate(rows):
            alone = model(input_features=torch.from_numpy(row[None])).embedding
            torch.testing.assert_close(got[n : n + 1], alone, atol=1e-12, rtol=0)


def test_a_sound_may_be_as_long_as_the_table_of_positions_after_the_strides(tmp_path: Path) -> None:
    learned = spec(FRONTS[0], position={"kind": "learned", "max_length": 3})
    session = seqspec.Session(seqspec.to_onnx(learned, tmp_path / "out"))
    frames = random(1, 4, 8).astype(np.float32)
    assert session.run({"input_features": frames[:, :, :6]})["last_hidden_state"].shape == (1, 3, 6)
    with pytest.raises(RuntimeFault, match=r"input_features` has 7 positions.*ends at 6"):
        session.run({"input_features": frames[:, :, :7]})
    mask = np.array([[0, 1, 1, 1, 1, 1, 1, 0]])
    assert np.isfinite(session.run({"input_features": frames, "attention_mask": mask})["last_hidden_state"]).all()


def test_no_gradient_comes_from_padding() -> None:
    model = seqspec.to_torch(spec(FRONTS[0])).double()
    table, mask = scattered([random(4, 3), random(4, 6)], "holes")
    frames = torch.from_numpy(table).requires_grad_()
    out = model(input_features=frames, attention_mask=torch.from_numpy(mask)).last_hidden_state
    out[0, :2].sum().backward()
    assert torch.isfinite(frames.grad).all()
    assert not frames.grad[torch.from_numpy(mask == 0)[:, None].expand_as(frames)].any()
    assert frames.grad[0][:, mask[0] == 1].any()
