"""Cases 03, 19, 21, 22, 24, 26: positions and rotations, from spec to numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from end_to_end import PLAIN_NORM, Both, agree, close, gen, in_torch, named, torch_step, weights_of

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
        for out in both.run(more | {"input_ids": np.array([[*ids, 9]])}):
            agree(out["logits"][0, -1], NEXT_03)
    assert abs(np.abs(counted - LOGITS_03).max() - 1.264572339) < 1e-4  # what counting the padding does


SLOPES_19 = {
    1: [0.00390625],
    3: [0.0625, 0.00390625, 0.25],
    6: [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125],
    8: [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625],
    12: [
        0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625,
        0.7071067812, 0.3535533906, 0.1767766953, 0.08838834765,
    ],
}  # fmt: skip


@pytest.mark.parametrize("heads", SLOPES_19)
def test_19_slopes_of_any_number_of_heads(heads: int, tmp_path: Path) -> None:
    """Queries and keys are zeros: the weights are the softmax of slope · (key − query), 0 at the query."""
    spec = f"""
decoder:
  input: {{kind: features, size: {heads}}}
  d_model: {heads}
  position: alibi
  layers: [{{block: [{{kind: attention, heads: {heads}, return_weights: true}}]}}]
"""
    for out in Both(spec, {}, tmp_path).run({"features": gen((1, 4, heads), 1)}):
        last = weights_of(out)[0, :, 3]
        bias = np.log(last / last[:, 3:])
        agree(bias, np.outer(SLOPES_19[heads], [-3, -2, -1, 0]))
        if heads == 6:
            geometric = -np.outer(2.0 ** (-8 * np.arange(1, 7) / 6), [3, 2, 1, 0])
            agree(bias[0], [-0.75, -0.5, -0.25, 0], not_=geometric[0])


# ---- rotations: two or more tokens whose scores say what was turned ------------------------------------------------


def rotary(head_dim: int, rope: str, *, scale: float = 1.0, keys: str = "") -> tuple[str, dict[str, Any]]:
    """An encoder whose features are a query, a key and a value of `head_dim` channels each; `keys` of its attention."""
    width = 3 * head_dim
    spec = f"""
encoder:
  input: {{kind: features, size: {width}}}
  d_model: {width}
  bias: false
  position: {rope}
  norm: {PLAIN_NORM}
  final_norm: false
  layers: [{{block: [{{kind: attention, heads: 1, head_dim: {head_dim}, scale: {scale}, {keys}}}]}}]
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
    spec, weights = rotary(4, f"{{kind: rope, layout: {layout}}}")
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
def test_21_a_turned_vector(layout: str, tmp_path: Path) -> None:
    """Row i has the query [1, 2, 3, 4] at position 3, and at position 0, unturned, a key along channel i."""
    spec, weights = rotary(4, f"{{kind: rope, layout: {layout}}}", keys="return_weights: true")
    features = np.zeros((4, 4, 12))
    features[:, 3, :4], features[:, 0, 4:8] = [1.0, 2.0, 3.0, 4.0], np.eye(4)
    other = TURNED_21["interleaved" if layout == "half_split" else "half_split"]
    for out in Both(spec, weights, tmp_path).run({"features": features}):
        weight = weights_of(out)[:, 0, 3]
        agree(np.log(weight[:, 0] / weight[:, 1]), TURNED_21[layout], not_=other)


def test_21_rows_in_another_order_turn_one_layout_into_the_other(tmp_path: Path) -> None:
    order, width = [0, 2, 1, 3], 12
    maps = {f"encoder.layers.0.attention.{p}_proj.weight": gen((4, width), 1 + n) for n, p in enumerate("qkv")}
    given, features, outputs = {}, gen((2, 5, width), 7), []
    for layout in ("interleaved", "half_split"):
        spec, weights = rotary(4, f"{{kind: rope, layout: {layout}}}")
        for name, value in maps.items():
            given[name] = value[order] if layout == "half_split" and "v_proj" not in name else value
        outputs.append(Both(spec, weights | given, tmp_path / layout).run({"features": features}))
        unordered = Both(spec, weights | maps, tmp_path / f"{layout}-unordered").run({"features": features})
    for one, two, wrong in zip(*outputs, unordered, strict=True):
        agree(two["last_hidden_state"], one["last_hidden_state"], not_=wrong["last_hidden_state"])


PRECISIONS_22 = {"float32": 1e-4, "float16": 1e-3, "bfloat16": 8e-3}
"""As the case has it; bfloat16, of which it says nothing, has 8 times the rounding of float16."""


def in_precision(spec: str, weights: Any, folder: Path, dtype: str, inputs: dict[str, Any]) -> list[Any]:
    """The outputs of PyTorch and of onnxruntime in one dtype; onnxruntime computes no bfloat16 on the CPU."""
    outputs = [torch_step(in_torch(spec, weights).to(getattr(torch, dtype)), inputs)[0]]
    if dtype != "bfloat16":
        session = Both(spec, weights, folder, dtype=dtype).session
        outputs.append(dict(session.run(inputs | {"features": inputs["features"].astype(dtype)})))
    return outputs


@pytest.mark.parametrize("dtype", PRECISIONS_22)
def test_22_angles_are_exact_in_half_precision(dtype: str, tmp_path: Path) -> None:
    """cos and sin of 1857 · 10000^(-2/32): a unit vector, turned, against the two of its pair, one in each row."""
    spec, weights = rotary(32, "rope", scale=8.0, keys="return_weights: true")
    features = np.zeros((2, 1858, 96))
    features[:, 1857, 1] = features[0, 0, 32 + 1] = features[1, 0, 32 + 17] = 1.0
    for out in in_precision(spec, weights, tmp_path, dtype, {"features": features}):
        weight = weights_of(out)[:, 0, 1857].astype(np.float64)
        turned = np.log(weight[:, 0] / weight[:, 1]) / 8
        agree(turned, [0.3066928098, 0.9518085524], not_=[-0.4081646206, 0.9129], tolerance=PRECISIONS_22[dtype])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_22_every_position_has_a_row_of_its_own(dtype: str, tmp_path: Path) -> None:
    """The score of neighbours is the same wherever they stand, and never that of equals."""
    spec, weights = rotary(4, "rope", scale=4.0)
    spec = spec.replace("layers:", "mask: {kind: window, left: 1, right: 0}\n  layers:")
    features, q, k, v = tokens(4, 512)
    for first in (0, 1):  # the keys that are not zeros: even tokens, then odd ones
        q[:, 0], k[:, 0], v[:, 0] = 1.0, 0.0, 0.0
        k[first::2, 0] = v[first::2, 0] = 1.0
        for out in in_precision(spec, weights, tmp_path / str(first), dtype, {"features": features}):
            before = (out["last_hidden_state"] - features)[0, first + 1 :: 2, 0]  # against a score of 0, its own
            want, equal = np.full(len(before), 4 * math.cos(1)), np.full(len(before), 4.0)
            agree(np.log(before / (1 - before)), want, not_=equal, tolerance=2e-2 if dtype == "float16" else 0.1)


INVERSE_24 = [
    1.0, 0.6636012377, 0.4403666027, 0.2922278226, 0.1939227447, 0.1286873734, 0.08539710029, 0.05666962145,
    0.03760603093, 0.02495540867, 0.01656044008, 0.01098952853, 0.007292664737, 0.004839421346, 0.003211445995,
    0.001290547928, 0.0004295567966, 9.708287803e-05, 1.946163818e-05, 1.291476719e-05, 8.57025549e-06,
    5.68723215e-06, 3.774054294e-06, 2.504467101e-06, 1.661967468e-06, 1.102883669e-06, 7.318749675e-07,
    4.856731343e-07, 3.22293293e-07, 2.138742282e-07, 1.419272025e-07, 9.418306725e-08,
]  # fmt: skip
LLAMA = "scaling: {kind: llama3, factor: 32, low_freq_factor: 1, high_freq_factor: 4, original_max_length: 8192}"


def frequencies(head_dim: int, scaling: str, pairs: dict[int, float]) -> Any:
    """Each pair of channels alone, a key at 0 and a query where its angle should be near 1."""
    spec, weights = rotary(head_dim, f"{{kind: rope, theta: 500000, {scaling}}}", keys="return_weights: true")
    features, positions = np.zeros((len(pairs), 2, 3 * head_dim)), np.zeros((len(pairs), 2), np.int64)
    for row, (pair, frequency) in enumerate(pairs.items()):
        features[row, 1, pair] = features[row, 0, head_dim + pair] = 1.0
        positions[row, 1] = round(1 / frequency)
    out = torch_step(in_torch(spec, weights).double(), {"features": features, "position_ids": positions})[0]
    weight = weights_of(out)[:, 0, 1]
    return np.arccos(np.clip(np.log(weight[:, 0] / weight[:, 1]), -1, 1)) / positions[:, 1]


def test_24_three_bands_of_frequencies() -> None:
    pairs = dict(enumerate(INVERSE_24))
    agree(frequencies(64, LLAMA, pairs) / INVERSE_24, np.ones(32))
    unscaled = frequencies(64, "layout: half_split", pairs)
    assert close(unscaled[:15] / INVERSE_24[:15], np.ones(15))
    assert not np.isclose(unscaled[15:], INVERSE_24[15:], rtol=0.01).any()


def test_24_another_width_and_factor() -> None:
    """Pair 35 is the first that is divided by the whole factor, 34 is blended."""
    whole = {pair: 500000 ** (-pair / 64) / 8 for pair in (34, 35)}
    pairs = whole | {30: 0.001371893568, 63: 3.068925989e-07}
    found = frequencies(128, LLAMA.replace("32", "8"), pairs)
    agree(found[1:] / list(pairs.values())[1:], np.ones(3))
    assert not np.isclose(found[0], whole[34], rtol=0.01)


def test_24_the_keys_of_a_scaling_are_known() -> None:
    for wrong in ("factr: 32", "original_max_position_embeddings: 8192"):
        spec, _ = rotary(64, f"{{kind: rope, scaling: {{kind: llama3, {wrong}}}}}")
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
    with pytest.raises(seqspec.RuntimeFault, match="no input `position_ids`"):  # they are counted in the file
        both.session.run(negative)
