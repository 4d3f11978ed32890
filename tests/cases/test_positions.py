"""Cases 03, 21, 22, 24, 26: positions and rotations, from spec to numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from end_to_end import PLAIN_NORM, Both, agree, close, gen, in_torch, named, torch_step

import seqspec

LOGITS_03 = [
    [
        -1.670068689, 2.61349951, -3.254651357, 3.519825624, -3.378126201, 2.846359824,
        -1.985614658, 0.8952345472, 0.2985140044, -1.457710662, 2.448509051,
    ],
    [
        0.1922165638, -0.2345825843, 0.2498374762, -0.2361968168, 0.1953310181, -0.1318268002,
        0.05307138563, 0.03176485815, -0.112944615, 0.1810425048, -0.2282467427,
    ],
    [
        0.5823695261, 0.2914304251, -1.131457284, 1.840798066, -2.337329374, 2.563952246,
        -2.494331011, 2.136347464, -1.53146463, 0.7495503344, 0.118749048,
    ],
]  # fmt: skip
NEXT_03 = [
    0.1928732615, -0.3406793639, 0.4491012112, -0.5056099394, 0.5037542446, -0.4436365569,
    0.3322342739, -0.1824874458, 0.01162901629, 0.1605383169, -0.314165035,
]  # fmt: skip


def test_03_padding_on_the_left_moves_no_position(tmp_path: Path) -> None:
    spec = f"""
decoder:
  input: {{kind: tokens, vocab_size: 11}}
  d_model: 4
  bias: false
  position: {{kind: learned, max_length: 8}}
  norm: {PLAIN_NORM}
  final_norm: false
  layers: [{{block: [{{kind: attention, heads: 1}}]}}]
head: {{kind: lm, tied: true}}
"""
    weights = {"decoder.embed_tokens.weight": gen((11, 4), 1), "decoder.embed_positions.weight": gen((8, 4), 2, 0.8)}
    weights |= {f"decoder.layers.0.attention.{p}_proj.weight": gen((4, 4), 3 + n, 0.7) for n, p in enumerate("qkvo")}
    both = Both(spec, weights, tmp_path)
    layouts = {
        "alone": ([3, 7, 5], None),
        "left": ([0, 0, 3, 7, 5], [0, 0, 1, 1, 1]),
        "right": ([3, 7, 5, 0, 0], [1, 1, 1, 0, 0]),
    }
    counted = torch_step(
        both.model,
        {
            "input_ids": np.array([[0, 0, 3, 7, 5]]),
            "attention_mask": np.array([[0, 0, 1, 1, 1]]),
            "position_ids": np.arange(5)[None],
        },
    )[0]["logits"][0, 2:]
    for ids, mask in layouts.values():
        real = np.array(mask or [1, 1, 1], bool)
        inputs = {"input_ids": np.array([ids])} | ({} if mask is None else {"attention_mask": np.array([mask])})
        steps = both.step(inputs)
        for out, _ in steps:
            agree(out["logits"][0, real], LOGITS_03, not_=counted)
        more = {"input_ids": np.array([[9]])}
        if mask is not None:
            more["attention_mask"] = np.array([[*mask, 1]])
        for out, _ in both.step(more, (steps[0][1], steps[1][1])):
            agree(out["logits"][0, 0], NEXT_03)
    assert abs(np.abs(counted - LOGITS_03).max() - 1.264572339) < 1e-4  # what counting the padding does


# ---- rotations: two or more tokens whose scores say what was turned ------------------------------------------------


def rotary(head_dim: int, tokens: int, rope: str, *, scale: float = 1.0) -> tuple[str, dict[str, Any]]:
    """An encoder whose features are a query, a key and a value of `head_dim` channels each."""
    width = 3 * head_dim
    spec = f"""
encoder:
  input: {{kind: features, size: {width}}}
  d_model: {width}
  bias: false
  position: {rope}
  norm: {PLAIN_NORM}
  final_norm: false
  layers: [{{block: [{{kind: attention, heads: 1, head_dim: {head_dim}, scale: {scale}}}]}}]
"""
    eye, layer = np.eye(width), "encoder.layers.0.attention"
    weights = {f"{layer}.{p}_proj.weight": eye[n * head_dim : (n + 1) * head_dim] for n, p in enumerate("qkv")}
    return spec, weights | {f"{layer}.o_proj.weight": eye[:, :head_dim]}


def tokens(head_dim: int, count: int) -> tuple[Any, Any, Any, Any]:
    """features[1, T, 3 d] and its views of query, key and value."""
    features = np.zeros((1, count, 3 * head_dim))
    return features, *(features[0, :, n * head_dim : (n + 1) * head_dim] for n in range(3))


SCORES_21 = {"half_split": 0.9501042917, "interleaved": 0.568654267}


@pytest.mark.parametrize("layout", ["half_split", "interleaved"])
def test_21_scores_depend_on_the_layout_and_the_distance(layout: str, tmp_path: Path) -> None:
    spec, weights = rotary(4, 3, f"{{kind: rope, layout: {layout}}}")
    both = Both(spec, weights, tmp_path)
    features, q, k, v = tokens(4, 3)
    q[0], k[2], v[2, 0] = [0.9854, 0.8632, 0.335, -0.3508], [0.4274, -0.2555, -0.8183, -0.9962], 1.0
    wrong = SCORES_21["interleaved" if layout == "half_split" else "half_split"]

    def score(out: Any) -> float:
        weight = (out["last_hidden_state"] - features)[0, 0, 0]  # the other two scores are 0
        return math.log(2 * weight / (1 - weight))

    for out in both.run({"features": features}):
        agree(score(out), SCORES_21[layout], not_=wrong)
    for start in (1, 50):
        moved = {"features": features, "position_ids": np.arange(start, start + 3)[None]}
        agree(score(torch_step(both.model.double(), moved)[0]), SCORES_21[layout], not_=wrong)


TURNED_21 = {
    "half_split": [-1.413352521, 1.879118067, -2.828857482, 4.058191135],
    "interleaved": [-1.272232513, -1.838864985, 2.8786681, 4.088186636],
}


@pytest.mark.parametrize("layout", ["half_split", "interleaved"])
def test_21_a_turned_vector(layout: str) -> None:
    """The query [1, 2, 3, 4] at position 3 against each unit vector, unturned at position 0."""
    spec, weights = rotary(4, 6, f"{{kind: rope, layout: {layout}}}")
    model = in_torch(spec, weights).double()
    features, q, k, v = tokens(4, 6)
    q[5], k[:4], v[:4] = [1.0, 2.0, 3.0, 4.0], np.eye(4), np.eye(4)
    out = torch_step(model, {"features": features, "position_ids": np.array([[0, 0, 0, 0, 0, 3]])})[0]
    shares = (out["last_hidden_state"] - features)[0, 5, :4]
    rest = (1 - shares.sum()) / 2  # the weight of a score of 0: two keys are zeros
    other = TURNED_21["interleaved" if layout == "half_split" else "half_split"]
    agree(np.log(shares / rest), TURNED_21[layout], not_=other)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_22_angles_are_exact_in_half_precision(dtype: str) -> None:
    """cos(1857 · 10000^(-2/32)), read off the score of two unit vectors."""
    spec, weights = rotary(32, 3, "rope")
    model = in_torch(spec, weights).to(getattr(torch, dtype))
    features, q, k, v = tokens(32, 3)
    q[2, 1], k[0, 1], v[0, 0] = 1.0, 1.0, 1.0
    out = torch_step(model, {"features": features, "position_ids": np.array([[0, 0, 1857]])})[0]
    weight = (out["last_hidden_state"] - features)[0, 2, 0]
    agree(math.log(2 * weight / (1 - weight)), 0.3066928098, not_=-0.4081646206, tolerance=2e-2)


def test_22_every_position_has_a_row_of_its_own(tmp_path: Path) -> None:
    """In float16 through ONNX: the score of neighbours is the same wherever they stand, and never that of equals."""
    spec, weights = rotary(4, 512, "rope", scale=4.0)
    spec = spec.replace("layers:", "mask: {kind: window, left: 1, right: 0}\n  layers:")
    both = Both(spec, weights, tmp_path, dtype="float16")
    features, q, k, v = tokens(4, 512)
    q[:, 0] = k[::2, 0] = v[::2, 0] = 1.0
    y = both.session.run({"features": features.astype(np.float16)})["last_hidden_state"]
    before = (y - features)[0, 1::2, 0]  # odd tokens: the key before has score 4 cos(1), its own 0
    agree(np.log(before / (1 - before)), np.full(256, 4 * math.cos(1)), not_=np.full(256, 4.0), tolerance=2e-2)


INVERSE_24 = [
    1.0, 0.6636012377, 0.4403666027, 0.2922278226, 0.1939227447, 0.1286873734, 0.08539710029, 0.05666962145,
    0.03760603093, 0.02495540867, 0.01656044008, 0.01098952853, 0.007292664737, 0.004839421346, 0.003211445995,
    0.001290547928, 0.0004295567966, 9.708287803e-05, 1.946163818e-05, 1.291476719e-05, 8.57025549e-06,
    5.68723215e-06, 3.774054294e-06, 2.504467101e-06, 1.661967468e-06, 1.102883669e-06, 7.318749675e-07,
    4.856731343e-07, 3.22293293e-07, 2.138742282e-07, 1.419272025e-07, 9.418306725e-08,
]  # fmt: skip
LLAMA = "scaling: {kind: llama3, factor: 32, low_freq_factor: 1, high_freq_factor: 4, original_max_length: 8192}"


def test_24_three_bands_of_frequencies() -> None:
    """Each pair of channels alone, a key at 0 and a query where its angle should be near 1."""
    measured = {}
    for name, scaling in (("scaled", LLAMA), ("unscaled", "layout: half_split")):
        spec, weights = rotary(64, 2, f"{{kind: rope, theta: 500000, {scaling}}}")
        model = in_torch(spec, weights).double()
        features, positions = np.zeros((32, 2, 192)), np.zeros((32, 2), np.int64)
        for pair, frequency in enumerate(INVERSE_24):
            features[pair, 1, pair] = features[pair, 0, 64 + pair] = features[pair, 0, 128] = 1.0
            positions[pair, 1] = round(1 / frequency)
        out = torch_step(model, {"features": features, "position_ids": positions})[0]
        weight = (out["last_hidden_state"] - features)[:, 1, 0]
        measured[name] = np.arccos(np.clip(np.log(weight / (1 - weight)), -1, 1)) / positions[:, 1]
    agree(measured["scaled"] / INVERSE_24, np.ones(32), tolerance=1e-5)
    assert close(measured["unscaled"][:15], INVERSE_24[:15])
    assert not np.isclose(measured["unscaled"][15:], INVERSE_24[15:], rtol=0.01).any()


def test_24_the_keys_of_a_scaling_are_known() -> None:
    for wrong in ("factr: 32", "original_max_position_embeddings: 8192"):
        spec, _ = rotary(64, 2, f"{{kind: rope, scaling: {{kind: llama3, {wrong}}}}}")
        with pytest.raises(seqspec.SpecError, match=wrong.split(":")[0]):
            seqspec.load(named(spec))


# ---- added positions -----------------------------------------------------------------------------------------------

ADDED = """
encoder:
  input: {{kind: tokens, vocab_size: 3}}
  d_model: {width}
  position: {position}
  norm_placement: pre
  final_norm: false
  layers: [{{block: [{{kind: ffn, d_ff: 1}}]}}]
"""


def test_26_sinusoids_of_any_width(tmp_path: Path) -> None:
    want = {
        5: [
            [0.0, 1.0, 0.0, 1.0, 0.0],
            [0.8414709848, 0.5403023059, 0.02511622291, 0.9996845379, 0.0006309573026],
            [0.9092974268, -0.4161468365, 0.05021659939, 0.9987383507, 0.001261914354],
            [0.1411200081, -0.9899924966, 0.075285293, 0.9971620353, 0.001892870903],
        ],
        4: [[0.0, 1.0, 0.0, 1.0], [0.8414709848, 0.5403023059, 0.009999833334, 0.9999500004]],
    }
    for width, table in want.items():
        both = Both(ADDED.format(width=width, position="sinusoidal"), {}, tmp_path / str(width))
        for out in both.run({"input_ids": np.zeros((1, len(table)), np.int64)}):
            agree(out["last_hidden_state"][0], table)


def test_26_the_end_of_a_learned_table(tmp_path: Path) -> None:
    spec = ADDED.format(width=4, position="{kind: learned, max_length: 8}")
    both = Both(spec, {"encoder.embed_positions.weight": gen((8, 4), 1)}, tmp_path)
    for out in both.run({"input_ids": np.zeros((2, 8), np.int64)}):
        agree(out["last_hidden_state"][0], gen((8, 4), 1))
    long = {"input_ids": np.zeros((2, 9), np.int64)}
    with pytest.raises(IndexError, match=r"(?s)9.*8"):
        torch_step(both.model, long)
    with pytest.raises(seqspec.RuntimeFault, match=r"(?s)9.*8"):
        both.session.run(long)
    negative = {"input_ids": np.zeros((1, 2), np.int64), "position_ids": np.array([[0, -1]])}
    with pytest.raises(IndexError, match="-1"):
        torch_step(both.model, negative)
