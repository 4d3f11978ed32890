"""Cases 01, 05, 07, 09, 30, 32, 35, 36, 37: attention, its masks and its caches, from spec to numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from end_to_end import PLAIN_NORM, Both, Heads, agree, close, gen, in_torch, named, torch_step, weights_of

import seqspec

Q = [[0.9854, 0.8632], [0.335, -0.3508], [-0.8716, -0.9825], [-0.6313, 0.0168], [0.657, 0.9882], [0.8546, 0.3191]]
K = [[0.4274, -0.2555], [-0.8183, -0.9962], [-0.7055, -0.0831], [0.5784, 0.9679], [0.9022, 0.4121], [-0.2718, -0.8278]]
V = [[-0.7568, -0.9999], [-0.7728, -0.1822], [0.4941, 0.938], [0.9407, 0.501], [-0.1743, -0.7677], [-1.0, -0.762]]
BIG_Q = [[7.8836, 6.9057], [2.6799, -2.8063], [-6.9726, -7.8596]]
BIG_K = [[3.419, -2.0443], [-6.5462, -7.9693], [-5.6443, -0.6647]]
ONE = Heads(1, 2)


@pytest.mark.parametrize("keys", ["", "return_weights: true"])
@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_01_a_query_that_may_attend_to_nothing_gives_zeros(target: str, keys: str, tmp_path: Path) -> None:
    """Among others that may: theirs are as without it, and so are the gradients."""
    features, keep = ONE.features([Q[:3]], [K[:3]], [V[:3]]), np.array([[[1, 0, 0], [1, 1, 0], [0, 0, 0]]])
    spec = ONE.spec("encoder", f"mask: {{kind: given, name: keep}}, {keys}")
    both = Both(spec, ONE.weights("encoder"), tmp_path, target=target)
    for out in both.run({"features": features, "keep": keep}):
        want = [[-0.7568, -0.9999], [-0.7643550617, -0.613789127], [0, 0]]
        agree(ONE.attended(out["last_hidden_state"], features)[0], want, not_=[*want[:2], [np.nan] * 2])
        if keys:
            agree(weights_of(out)[0, 0], [[1, 0, 0], [0.5278086425, 0.4721913575, 0], [0, 0, 0]])
            assert not weights_of(out)[0, 0][keep[0] == 0].any()
    given = torch.tensor(features, dtype=torch.float32, requires_grad=True)
    out = both.model.train()(features=given, keep=torch.tensor(keep)).last_hidden_state
    out[0, :2, :2].sum().backward()
    assert given.grad is not None
    assert given.grad.isfinite().all()
    agree(given.grad[0, :, 4:], [[1.527808642] * 2, [0.4721913575] * 2, [0, 0]])


def test_01_a_sequence_of_padding_gives_the_bias(tmp_path: Path) -> None:
    layer, x = "encoder.layers.0.attention", gen((2, 3, 4), 4)
    weights = {f"{layer}.{p}_proj.weight": gen((4, 4), 5 + n, 0.6) for n, p in enumerate("qkvo")}
    weights |= {f"{layer}.{p}_proj.bias": gen((4,), 9 + n, 0.3) for n, p in enumerate("qkvo")}
    spec = f"""
encoder:
  input: {{kind: features, size: 4}}
  d_model: 4
  norm: {PLAIN_NORM}
  final_norm: false
  layers: [{{block: [{{kind: attention, heads: 1}}]}}]
"""
    both = Both(spec, weights, tmp_path)
    inputs = {"features": x, "attention_mask": np.array([[1, 1, 0], [0, 0, 0]])}
    bias = [0.0024, -0.1914, -0.2952, -0.2602]
    for out in both.run(inputs):
        y = out["last_hidden_state"]
        agree(
            (y - x)[0, :2],
            [
                [-0.3233043458, -0.02497014826, -0.2832863012, -0.4491234096],
                [-0.1400856284, -0.07300029468, -0.3757108833, -0.2267907483],
            ],
        )
        agree(y[1], [bias] * 3, not_=np.full((3, 4), np.nan))
    given = torch.tensor(x, dtype=torch.float32, requires_grad=True)
    out = both.model.train()(features=given, attention_mask=torch.tensor(inputs["attention_mask"]))
    out.last_hidden_state.sum().backward()
    assert given.grad is not None
    assert given.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in both.model.parameters())


def test_05_one_new_query_sees_the_whole_cache(tmp_path: Path) -> None:
    full = [
        [-0.7568, -0.9999],
        [-0.7643550617, -0.613789127],
        [-0.4166447538, 0.002500386956],
        [-0.07106192771, 0.1346645943],
    ]
    features = ONE.features([Q[:4]], [K[:4]], [V[:4]])
    both = Both(ONE.spec("decoder"), ONE.weights("decoder"), tmp_path)
    for out in both.run({"features": features}):
        agree(ONE.attended(out["last_hidden_state"], features)[0], full)
    for stepped in both.in_steps({"features": features}):
        agree(ONE.attended(stepped, features)[0], full)
    assert not close(V[0], full[3])  # what alignment to the start gives


def test_07_padding_is_said_one_way(tmp_path: Path) -> None:
    q = [[1.4782, 1.2948], [0.5025, -0.5262], [-1.3074, -1.4737]]
    k = [[0.6411, -0.3833], [-1.2274, -1.4942], [-1.0583, -0.1246]]
    right = {
        "encoder": [[-0.7575806928, -0.9600017197], [-0.7638029141, -0.6420073202]],
        "decoder": [[-0.7568, -0.9999], [-0.7638029141, -0.6420073202]],
    }
    flipped = [[0.4941, 0.938]] * 2
    features = ONE.features([q], [k], [V[:3]])
    for role, want in right.items():
        both = Both(ONE.spec(role), ONE.weights(role), tmp_path / role)
        for out in both.run({"features": features, "attention_mask": np.array([[1, 1, 0]])}):
            agree(ONE.attended(out["last_hidden_state"], features)[0][:2], want, not_=flipped)
        additive = {"features": features, "attention_mask": np.array([[0.0, 0.0, -np.inf]])}
        with pytest.raises(TypeError, match="not floats"):
            torch_step(both.model, additive)
        with pytest.raises(seqspec.RuntimeFault, match="attention_mask"):
            both.session.run(additive | {"features": features.astype(np.float32)})


@pytest.mark.parametrize("kind", [np.bool_, np.int64])
def test_07_true_is_kept_in_every_mask(kind: type, tmp_path: Path) -> None:
    """A mask that is given says what may be seen, as attention_mask does, and joins another."""
    q = [[1.4782, 1.2948], [0.5025, -0.5262], [-1.3074, -1.4737]]
    k = [[0.6411, -0.3833], [-1.2274, -1.4942], [-1.0583, -0.1246]]
    features, real = ONE.features([q], [k], [V[:3]]), np.array([[[1, 1, 0]] * 3], kind)
    weights = [[0.9512067013, 0.04879329869, 0], [0.5623178674, 0.4376821326, 0], [0.05289992206, 0.9471000779, 0]]
    output = [[-0.7575806928, -0.9600017197], [-0.7638029141, -0.6420073202], [-0.7719536012, -0.2254562663]]
    ignored = [[1, 0, 0], weights[1], [0.04429032309, 0.7929570937, 0.1627525833]]
    given = "{kind: given, name: keep}"
    for mask, first in ((given, None), (f"{{all: [causal, {given}]}}", ([1, 0, 0], [-0.7568, -0.9999]))):
        spec = ONE.spec("encoder", f"mask: {mask}, return_weights: true")
        both = Both(spec, ONE.weights("encoder"), tmp_path / ("joined" if first else "alone"))
        for out in both.run({"features": features, "keep": real}):
            agree(weights_of(out)[0, 0], [first[0] if first else weights[0], *weights[1:]], not_=ignored)
            attended = ONE.attended(out["last_hidden_state"], features)[0]
            agree(attended, [first[1] if first else output[0], *output[1:]], not_=[[0.4941, 0.938]] * 3)
        with pytest.raises(TypeError, match="not floats"):
            torch_step(both.model, {"features": features, "keep": np.where(real, 0, -np.inf)})
        with pytest.raises(seqspec.RuntimeFault, match="keep"):
            both.session.run({"features": features.astype(np.float32), "keep": np.where(real, 0, -np.inf)})


@pytest.mark.parametrize("keys", ["", "return_weights: true"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_09_masks_in_half_precision(dtype: str, keys: str, tmp_path: Path) -> None:
    features = ONE.features([BIG_Q], [BIG_K], [V[:3]])
    want, tolerance = [[0.0, 0.0], [0.0, 0.0], [0.4941, 0.938]], 2e-3 if dtype == "float16" else 2e-2
    wrong = [[-0.7568, -0.9999], [-0.3452, -0.0814], [0.4941, 0.938]]  # masks as lowest numbers, added in half
    inputs = {"features": features, "attention_mask": np.array([[0, 0, 1]])}
    spec, weights = ONE.spec("decoder", f"residual: none, {keys}"), ONE.weights("decoder")
    outputs = [torch_step(in_torch(spec, weights).to(getattr(torch, dtype)), inputs)[0]]
    if dtype == "float16":  # onnxruntime computes no bfloat16 on the CPU
        session = Both(spec, weights, tmp_path, dtype="float16").session
        outputs.append(dict(session.run(inputs | {"features": features.astype(np.float16)})))
    for out in outputs:
        agree(out["last_hidden_state"][0, :, :2], want, not_=wrong, tolerance=tolerance)
        assert not keys or np.array_equal(weights_of(out)[0, 0], [[0, 0, 0], [0, 0, 0], [0, 0, 1]])


def test_30_which_query_heads_share(tmp_path: Path) -> None:
    grouped = Heads(4, 2, kv_heads=2)
    q = gen((4, 3, 2), 1)
    features = grouped.features(q, gen((2, 3, 2), 2), gen((2, 3, 2), 3))
    want = [
        [[-0.7568, -0.9999], [-0.7643550617, -0.613789127], [-0.4166447538, 0.002500386956]],
        [[-0.7568, -0.9999], [-0.7608069784, -0.795118358], [-0.4190406746, -0.3020150423]],
        [[0.9407, 0.501], [0.3779817667, -0.1392875539], [0.1764084442, -0.1881757821]],
        [[0.9407, 0.501], [0.3222403413, -0.2027127973], [-0.6375487934, -0.6065768495]],
    ]
    tiled = [
        [[-0.7568, -0.9999], [-0.7643550617, -0.613789127], [-0.4166447538, 0.002500386956]],
        [[0.9407, 0.501], [0.4492159721, -0.058233889], [0.1435331173, -0.2534950409]],
        [[-0.7568, -0.9999], [-0.769057126, -0.3734842528], [-0.2785667524, -0.04880224081]],
        [[0.9407, 0.501], [0.3222403413, -0.2027127973], [-0.6375487934, -0.6065768495]],
    ]
    both = Both(grouped.spec("decoder"), grouped.weights("decoder"), tmp_path)
    for out in both.run({"features": features}):
        agree(grouped.attended(out["last_hidden_state"], features), want, not_=tiled)


@pytest.mark.parametrize(
    ("width", "keys", "fine", "told"),
    [
        (64, "heads: 8, kv_heads: 8", True, ()),
        (64, "heads: 8, kv_heads: 2", True, ()),
        (64, "heads: 8, kv_heads: 1", True, ()),
        (70, "heads: 7, kv_heads: 2", False, ("7", "2")),
        (64, "heads: 32, kv_heads: 5", False, ("32", "5")),
        (64, "heads: 4, kv_heads: 8", False, ("4", "8")),
        (64, "heads: 8, kv_heads: 0", False, ("0",)),
        (64, "heads: 8, kv_heads: -2", False, ("-2",)),
        (520, "heads: 8, position: rope", False, ("65",)),
        (520, "heads: 8", True, ()),
        (10, "heads: 4", False, ("10", "4")),
    ],
)
def test_30_head_counts(width: int, keys: str, fine: bool, told: tuple[str, ...]) -> None:
    text = f"""
seqspec: 1
name: case
encoder:
  input: {{kind: tokens, vocab_size: 5}}
  d_model: {width}
  layers: [{{block: [{{kind: attention, {keys}}}]}}]
"""
    report = seqspec.check(text)
    assert report.has_errors != fine
    assert all(number in str(next(iter(report)).message) for number in told)


WINDOW = [
    [-0.7568, -0.9999],
    [-0.7643550617, -0.613789127],
    [-0.4166447538, 0.002500386956],
    [0.0869923665, 0.3961679487],
    [0.4549945941, 0.07002686059],
    [0.1435331173, -0.2534950409],
]


NORM_FIRST = [-2.149233221, 0.6357103354, -0.08120160669, -0.5838720097]
NORM_LAST = [-2.196611116, 0.6251650569, -0.2205704014, -0.5579236507]
NORM_UNSCALED = [-1.464407411, 1.250330114, -0.2757130018, -0.4649363756]
LEARNED_SCALE = [1.5, 0.5, 0.8, 1.2]


@pytest.mark.parametrize(
    ("place", "scale", "right", "wrong"),
    [
        ("before_rotation", LEARNED_SCALE, NORM_FIRST, NORM_LAST),
        ("after_rotation", LEARNED_SCALE, NORM_LAST, NORM_FIRST),
        ("before_rotation", [1] * 4, NORM_UNSCALED, NORM_FIRST),
        ("after_rotation", [1] * 4, NORM_UNSCALED, NORM_LAST),
    ],
)
def test_32_a_norm_of_queries_stands_where_it_is_said(
    place: str, scale: list[float], right: list[float], wrong: list[float], tmp_path: Path
) -> None:
    """Row i has a key along channel i at position 0, and none elsewhere: its score is the channel i of the query."""
    spec = f"""
decoder:
  input: {{kind: features, size: 8}}
  d_model: 8
  bias: false
  norm: {PLAIN_NORM}
  final_norm: false
  position: rope
  layers: [{{block: [{{kind: attention, heads: 1, head_dim: 4, scale: 1.0, return_weights: true,
                       qk_norm: {{kind: rmsnorm, eps: 1e-6}}, qk_norm_place: {place}}}]}}]
"""
    layer, one = "decoder.layers.0.attention", np.eye(8)
    weights = {
        "decoder.input_proj.weight": one,
        f"{layer}.q_proj.weight": one[:4],
        f"{layer}.k_proj.weight": one[4:],
        f"{layer}.q_norm.weight": scale,
        f"{layer}.k_norm.weight": np.ones(4),
    }
    features = np.zeros((4, 4, 8))
    features[:, 3, :4] = [1.9709, 1.7264, 0.67, -0.7016]
    features[:, 0, 4:] = np.eye(4)
    for out in Both(spec, weights, tmp_path).run({"features": features}):
        weight = weights_of(out)[:, 0, 3]
        agree(np.log(weight[:, 0] / weight[:, 1]) / 2, right, not_=np.array(wrong))


def test_35_a_window_of_three(tmp_path: Path) -> None:
    wrong = [
        *WINDOW[:3],
        [-0.07106192771, 0.1346645943],
        [0.3805492797, 0.05473349797],
        [0.1884387392, -0.1008713096],
    ]
    features = ONE.features([Q], [K], [V])
    spec = ONE.spec("decoder", "mask: {all: [causal, {kind: window, size: 3}]}")
    both = Both(spec, ONE.weights("decoder"), tmp_path)
    for out in both.run({"features": features}):
        agree(ONE.attended(out["last_hidden_state"], features)[0], WINDOW, not_=wrong)
    for stepped in both.in_steps({"features": features}):
        agree(ONE.attended(stepped, features)[0], WINDOW, not_=wrong)


def test_35_the_edges_of_windows(tmp_path: Path) -> None:
    features = ONE.features([Q], [K], [V])
    for size, name in ((1, "itself"), (6, "all")):
        spec = ONE.spec("decoder", f"mask: {{all: [causal, {{kind: window, size: {size}}}]}}")
        windowed = Both(spec, ONE.weights("decoder"), tmp_path / name).run({"features": features})
        causal = Both(ONE.spec("decoder"), ONE.weights("decoder"), tmp_path / f"{name}-causal")
        plain = causal.run({"features": features})
        for got, full in zip(windowed, plain, strict=True):
            values = ONE.attended(got["last_hidden_state"], features)[0]
            agree(values, V if size == 1 else ONE.attended(full["last_hidden_state"], features)[0], not_=WINDOW)
    with pytest.raises(seqspec.SpecError, match="size"):
        seqspec.load(named(ONE.spec("encoder", "mask: {kind: window, size: 0}")))


def test_36_the_cap_comes_before_the_mask(tmp_path: Path) -> None:
    want = [[-0.7568, -0.9999], [-0.7588983459, -0.8926614102], [-0.1393986464, 0.3778057065]]
    masked_first = [[-0.7567274336, -0.9997380727], [-0.7588411713, -0.8925778768], [-0.1393986464, 0.3778057065]]
    uncapped = [[-0.7568, -0.9999], [-0.7568128459, -0.9992434925], [-0.7728, -0.1822]]
    features = ONE.features([BIG_Q], [BIG_K], [V[:3]])
    weights = [[1, 0, 0], [0.8688533817, 0.1311466183, 0], [6.164599216e-05, 0.4999775306, 0.4999608235]]
    for keys in ("softcap: 5", "softcap: 5, return_weights: true"):  # the second is not one kernel
        both = Both(ONE.spec("decoder", keys), ONE.weights("decoder"), tmp_path)
        for out in both.run({"features": features}):
            agree(ONE.attended(out["last_hidden_state"], features)[0], want, not_=masked_first)
            if "weights" in keys:
                agree(weights_of(out)[0, 0], weights)
                assert not np.triu(weights_of(out)[0, 0], 1).any()
    assert not close(uncapped, want)
    for cap in (0, -1):
        with pytest.raises(seqspec.SpecError, match="softcap"):
            seqspec.load(named(ONE.spec("decoder", f"softcap: {cap}")))


CROSS = f"""
encoder:
  input: {{kind: features, size: 4}}
  d_model: 4
  norm: {PLAIN_NORM}
  final_norm: false
  layers: [{{block: [{{kind: ffn, d_ff: 1, bias: false}}]}}]
decoder:
  input: {{kind: features, size: 4}}
  d_model: 4
  norm: {PLAIN_NORM}
  final_norm: false
  bias: false
  layers: [{{block: [{{kind: attention, heads: 1}}, {{kind: cross_attention, from: encoder, heads: 1}}]}}]
"""


def test_37_the_encoders_padding_reaches_cross_attention(tmp_path: Path) -> None:
    want = [
        [1.346636488, -0.09802442595, 2.060018998, -0.5920848649],
        [0.3118135014, -0.9928953226, -1.098386998, -0.3506725945],
        [-0.03535067913, 0.2331733142, 1.381806862, 0.4032096942],
    ]
    unmasked = [
        [1.346591388, -0.0979490469, 2.059922054, -0.5919775213],
        [-0.05823448992, -0.8072185593, -1.078157053, -0.5743565323],
        [-0.03535097023, 0.2331737153, 1.381806397, 0.4032101691],
    ]
    memory = np.array(
        [
            [1.9313, 1.1424, -0.1838, -1.4236],
            [-1.9938, -1.6263, -0.4939, 0.8707],
            [1.8259, 1.9223, 1.1146, -0.2173],
            [-1.447, -1.9962, -1.6065, -0.4613],
        ]
    )[None]
    x = np.array(
        [[0.5087, 0.9437, 0.9349, 0.4864], [-0.1909, -0.7784, -0.9998, -0.751], [-0.149, 0.5231, 0.9491, 0.9288]]
    )[None]
    layer = "decoder.layers.0."
    weights = {f"{layer}attention.{p}_proj.weight": gen((4, 4), 1 + n, 0.7) for n, p in enumerate("qkvo")}
    weights |= {f"{layer}cross_attention.{p}_proj.weight": gen((4, 4), 5 + n, 0.7) for n, p in enumerate("qkvo")}
    both = Both(CROSS, weights, tmp_path)
    padded = {"features": memory, "attention_mask": np.array([[1, 1, 1, 0]])}
    longer = np.concatenate([memory, gen((1, 5, 4), 30, 9.0)], 1)
    more_padding = {"features": longer, "attention_mask": np.array([[1, 1, 1] + 6 * [0]])}
    for encoder in (padded, {"features": memory[:, :3]}, more_padding):
        for out in both.run(encoder | {"decoder_features": x}):
            agree(out["last_hidden_state"][0], want, not_=unmasked)
    state, lengths = None, []
    for t in range(3):
        inputs = {"decoder_features": x[:, t : t + 1]} | (padded if t == 0 else {})
        (one, first), (two, second) = both.step(inputs, state)
        state = (first, second)
        for out in (one, two):
            agree(out["last_hidden_state"][0, 0], want[t], not_=unmasked[1])
        keys = [f"past_key_values.0.{side}.key" for side in ("decoder", "encoder")]
        lengths.append([[s[key].shape[2] for key in keys] for s in state])
    assert lengths == [[[n, 4], [n, 4]] for n in (1, 2, 3)]
