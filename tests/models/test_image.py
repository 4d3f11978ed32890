"""Images: transformers' ViT on the same weights, patches cut by hand, and a decoder that describes them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification

import seqspec
from seqspec.diagnostics import RuntimeFault

EXAMPLES = Path(__file__).parents[2] / "examples"
VIT = [
    "encoder.d_model=24",
    "encoder.input.size=12",
    "encoder.input.patch=4",
    "encoder.position.max_length=10",
    "encoder.layers[0].repeat=2",
    "encoder.layers[0].block[0].heads=3",
    "encoder.layers[0].block[1].d_ff=40",
    "head.classes=5",
]
CAPTIONER = [
    "defaults.d_model=16",
    "encoder.input.size=12",
    "encoder.input.patch=4",
    *(f"{stack}.layers[0].repeat=1" for stack in ("encoder", "decoder")),
    *(f"{stack}.layers[0].block[0].heads=2" for stack in ("encoder", "decoder")),
    "decoder.layers[0].block[1].heads=2",
    "decoder.input.vocab_size=31",
]
RENAMED = (
    (r"^vit\.", ""),
    (r"embeddings\.patch_embeddings\.projection", "encoder.patch_embedding"),
    (r"layernorm_before", "attention_norm"),
    (r"layernorm_after", "ffn_norm"),
    (r"mlp\.fc1", "ffn.up_proj"),
    (r"mlp\.fc2", "ffn.down_proj"),
    (r"^layers\.", "encoder.layers."),
    (r"^layernorm", "encoder.final_norm"),
    (r"^classifier", "head"),
)


@pytest.fixture(scope="module")
def vit() -> ViTForImageClassification:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        image_size=12,
        patch_size=4,
        num_labels=5,
    )
    model = ViTForImageClassification(config).double().eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False).add_(torch.randn_like(parameter) * 0.1)
    return model


def weights(vit: ViTForImageClassification) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in vit.state_dict().items():
        for pattern, new in RENAMED:
            name = re.sub(pattern, new, name)
        found[name] = tensor
    found["encoder.class_token"] = found.pop("embeddings.cls_token")[0, 0]
    found["encoder.embed_positions.weight"] = found.pop("embeddings.position_embeddings")[0]
    return found


def test_it_is_vit(vit: ViTForImageClassification, tmp_path: Path) -> None:
    spec = seqspec.load(EXAMPLES / "vit-base.yaml", VIT)
    model, known = seqspec.to_torch(spec).double().eval(), weights(vit)
    model.load_state_dict(known)
    pixels = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 3, 12, 12)))
    with torch.no_grad():
        want, got = vit(pixel_values=pixels).logits, model(pixel_values=pixels).logits
    torch.testing.assert_close(got, want, atol=1e-10, rtol=0)

    single = {name: tensor.float().numpy() for name, tensor in known.items()}
    session = seqspec.Session(seqspec.to_onnx(spec, tmp_path / "out", weights=single))
    assert [port.name for port in session.inputs] == ["pixel_values"]
    seen = session.run({"pixel_values": pixels.numpy().astype(np.float32)})["logits"]
    np.testing.assert_allclose(seen, want.numpy(), atol=4e-6 * float(want.abs().max()))
    with pytest.raises(RuntimeFault, match=r"\[1, 3, 12, 16\]"):
        session.run({"pixel_values": np.zeros((1, 3, 12, 16), np.float32)})


def test_patches_are_cut_row_by_row() -> None:
    source = {"kind": "image", "size": 6, "patch": 2, "channels": 1}
    layers = [{"kind": "linear", "size": 1}]
    spec = {"seqspec": 1, "name": "cut", "encoder": {"input": source, "d_model": 1, "layers": layers}}
    model = seqspec.to_torch(spec).eval()
    model.load_state_dict(
        {
            "encoder.patch_embedding.weight": torch.tensor([[[[1.0, 10.0], [100.0, 1000.0]]]]),
            "encoder.patch_embedding.bias": torch.tensor([0.5]),
            "encoder.layers.0.linear.weight": torch.ones(1, 1),
            "encoder.layers.0.linear.bias": torch.zeros(1),
        }
    )
    pixels = torch.zeros(1, 1, 6, 6)
    pixels[0, 0, 0, 3] = 1  # the second patch, top right
    pixels[0, 0, 5, 0] = 2  # the seventh, bottom left
    out = model(pixel_values=pixels).last_hidden_state[0, :, 0].tolist()
    assert out == [0.5, 10.5, 0.5, 0.5, 0.5, 0.5, 200.5, 0.5, 0.5]


def test_a_caption_is_written_step_by_step(tmp_path: Path) -> None:
    spec = seqspec.load(EXAMPLES / "captioner.yaml", CAPTIONER)
    model = seqspec.to_torch(spec, seed=2).eval()
    session = seqspec.Session(seqspec.to_onnx(spec, tmp_path / "out", weights=model.state_dict()))
    pixels = np.random.default_rng(1).standard_normal((2, 3, 12, 12)).astype(np.float32)
    ids = np.array([[1, 4, 9, 2], [1, 30, 7, 7]])
    with torch.no_grad():
        whole = model(pixel_values=torch.from_numpy(pixels), decoder_input_ids=torch.from_numpy(ids)).logits.numpy()
    state, parts = None, []
    for t in range(4):
        result = session.run({"pixel_values": pixels, "decoder_input_ids": ids[:, t : t + 1]}, state)
        state = result.state
        parts.append(result["logits"])
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, atol=4e-6 * np.abs(whole).max())
    assert session.run({"pixel_values": pixels, "decoder_input_ids": ids})["logits"].shape == (2, 4, 31)


LAYERS = [{"kind": "gru", "hidden_size": 3, "bidirectional": True}, {"kind": "lstm", "hidden_size": 4}]


@pytest.mark.parametrize("layer", LAYERS)
def test_recurrent_layers_and_masks_read_patches_too(layer: dict[str, object]) -> None:
    """Nothing of an image is padding: every layer does without a mask."""
    source = {"kind": "image", "size": 6, "patch": 2}
    mask = {"any": [{"kind": "window", "size": 2}, {"kind": "global", "tokens": [0]}]}
    block = [
        {"kind": "attention", "heads": 2, "mask": mask},
        {"kind": "linear_attention", "heads": 2},
        {"kind": "low_rank_attention", "heads": 2, "projected_length": 2, "max_length": 9},
    ]
    stack = {"input": source, "d_model": 4, "position": "alibi", "layers": [{"block": block}, layer]}
    head = {"kind": "classifier", "classes": 2, "pool": "final_state"}
    spec = {"seqspec": 1, "name": "seen", "encoder": stack | {"final_norm": False}, "head": head}
    model = seqspec.to_torch(spec, seed=0).double().eval()
    pixels = torch.randn(3, 3, 6, 6, dtype=torch.float64)
    with torch.no_grad():
        together = model(pixel_values=pixels).logits
        for row in range(3):
            torch.testing.assert_close(model(pixel_values=pixels[row : row + 1]).logits, together[row : row + 1])
    assert together.shape == (3, 2)
