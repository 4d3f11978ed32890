"""Positions and rotations against numbers worked out by hand, published pitfalls by number, and transformers."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from harness import Array, Input, Row, reference, run_onnx, run_torch
from transformers.models.whisper.modeling_whisper import sinusoids

from seqspec.graph.dims import BATCH, TIME, Shape, dim
from seqspec.graph.types import DType
from seqspec.ops.positions import LearnedPositions, SinusoidalPositions
from seqspec.ops.rope import Rope, RopeTables
from seqspec.ops.rope_scaling import Llama3

B, T = dim(BATCH), dim(TIME)
LLAMA3_2_1B = [
    1.0, 0.6636012377, 0.4403666027, 0.2922278226, 0.1939227447, 0.1286873734, 0.08539710029, 0.05666962145,
    0.03760603093, 0.02495540867, 0.01656044008, 0.01098952853, 0.007292664737, 0.004839421346, 0.003211445995,
    0.001290547928, 0.0004295567966, 9.708287803e-05, 1.946163818e-05, 1.291476719e-05, 8.57025549e-06, 5.68723215e-06,
    3.774054294e-06, 2.504467101e-06, 1.661967468e-06, 1.102883669e-06, 7.318749675e-07, 4.856731343e-07,
    3.22293293e-07, 2.138742282e-07, 1.419272025e-07, 9.418306725e-08,
]  # fmt: skip


def rope_row(op: Rope, x: Array, cos: Array, sin: Array) -> Row:
    """x[T, d] of one head."""
    time = len(x)
    inputs = [Input((B, 1, T, x.shape[1]), x[None, None]), *(Input((B, T, f.shape[1]), f[None]) for f in (cos, sin))]
    return Row("case", op, tuple(inputs), {BATCH: 1, TIME: time})


def table_row(op: RopeTables | SinusoidalPositions | LearnedPositions, places: list[int]) -> Row:
    width = op.width
    kinds: list[tuple[Shape, Array, DType]] = [((B, T), np.array([places]), "int64")]
    if not isinstance(op, LearnedPositions):
        kinds.append(((B, T, width), np.zeros((1, len(places), width)), "float"))
    return Row("case", op, tuple(Input(*kind) for kind in kinds), {BATCH: 1, TIME: len(places)})


def everywhere(case: Row) -> list[list[Array]]:
    return [[x[0] for x in found] for found in (reference(case), run_torch(case), run_onnx(case, True))]


def test_21_both_pairings_by_name() -> None:
    x, angles = np.array([[1.0, 2.0, 3.0, 4.0]]), 3 * np.array([[1.0, 0.01]])
    half_split = [-1.413352521, 1.879118067, -2.828857482, 4.058191135]
    interleaved = [-1.272232513, -1.838864985, 2.8786681, 4.088186636]
    for layout, want, wrong in (("half_split", half_split, interleaved), ("interleaved", interleaved, half_split)):
        for (got,) in everywhere(rope_row(Rope(layout, 4), x, np.cos(angles), np.sin(angles))):
            np.testing.assert_allclose(got[0, 0], want, rtol=1e-5)
            assert not np.allclose(got[0, 0], wrong, rtol=1e-2)


def test_21_scores_see_the_distance_only() -> None:
    q, k = [0.9854, 0.8632, 0.335, -0.3508], [0.4274, -0.2555, -0.8183, -0.9962]
    for layout, want in (("half_split", 0.9501042917), ("interleaved", 0.568654267)):
        for m in (0, 5, 1000):
            tables = everywhere(table_row(RopeTables(4, 10000.0), [m, m + 2]))
            for number, (cos, sin) in enumerate(tables):
                (turned,) = everywhere(rope_row(Rope(layout, 4), np.array([q, k]), cos, sin))[number]
                assert turned[0, 0] @ turned[0, 1] == pytest.approx(want, abs=1e-6)


def test_21_a_permutation_turns_one_pairing_into_the_other() -> None:
    x, angles = np.array([[1.0, 2.0, 3.0, 4.0]]), 3 * np.array([[1.0, 0.01]])
    tables = np.cos(angles), np.sin(angles)
    order = [0, 2, 1, 3]
    (interleaved,), (half_split,) = (
        reference(rope_row(Rope("interleaved", 4), x, *tables)),
        reference(rope_row(Rope("half_split", 4), x[:, order], *tables)),
    )
    np.testing.assert_allclose(interleaved[..., order], half_split)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_22_angles_are_exact_whatever_the_model_computes_in(dtype: torch.dtype) -> None:
    tolerance = {torch.float16: 1e-3, torch.bfloat16: 4e-3, torch.float32: 1e-6}[dtype]
    cos, sin = run_torch(table_row(RopeTables(32, 10000.0), [1857]), dtype)
    assert cos[0, 0, 1] == pytest.approx(0.3066928098, abs=tolerance)
    assert sin[0, 0, 1] == pytest.approx(0.9518085524, abs=tolerance)
    assert cos[0, 0, 1] != pytest.approx(-0.4081646206, abs=0.1)
    cos, sin = run_torch(table_row(RopeTables(32, 10000.0), list(range(2048))), dtype)
    angles = np.arange(2048)[:, None] * 10000.0 ** (-np.arange(16) / 16)
    assert np.abs(cos[0] - np.cos(angles)).max() < tolerance
    assert len({tuple(row) for row in np.concatenate([cos[0], sin[0]], -1)[:512]}) == 512


def test_22_angles_in_a_file_are_exact() -> None:
    cos, sin = run_onnx(table_row(RopeTables(32, 10000.0), [1857, 1_000_000]), True)
    angles = np.array([1857, 1_000_000])[:, None] * 10000.0 ** (-np.arange(16) / 16)
    np.testing.assert_allclose(cos[0], np.cos(angles), atol=1e-7)
    np.testing.assert_allclose(sin[0], np.sin(angles), atol=1e-7)


def test_24_llama3_scaling() -> None:
    scaled = RopeTables(64, 500000.0, Llama3(32.0, 1.0, 4.0, 8192))
    np.testing.assert_allclose(scaled.frequencies(), LLAMA3_2_1B, rtol=1e-8)
    assert scaled.frequencies()[31] != pytest.approx(3.013858152e-06, rel=0.1)
    plain = RopeTables(64, 500000.0).frequencies()
    assert [i for i in range(32) if scaled.frequencies()[i] == plain[i]] == list(range(15))
    assert [i for i in range(32) if scaled.frequencies()[i] == plain[i] / 32] == list(range(18, 32))
    wide = RopeTables(128, 500000.0, Llama3(8.0, 1.0, 4.0, 8192)).frequencies()
    assert wide[30] == pytest.approx(0.001371893568, rel=1e-8)
    assert wide[63] == pytest.approx(3.068925989e-07, rel=1e-8)
    divided = [f == p / 8 for f, p in zip(wide, RopeTables(128, 500000.0).frequencies(), strict=True)]
    assert divided.index(True) == 35
    # at a far position every frequency shows in the tables
    for cos, sin in everywhere(table_row(scaled, [100_000])):
        np.testing.assert_allclose(cos[0], np.cos(100_000 * np.array(scaled.frequencies())), atol=1e-6)
        turned = np.arctan2(sin[0, 18:], cos[0, 18:])
        np.testing.assert_allclose(turned, 100_000 * np.array(LLAMA3_2_1B[18:]), rtol=1e-5)


def test_26_sinusoids_of_odd_width() -> None:
    five = [
        [0.0, 1.0, 0.0, 1.0, 0.0],
        [0.8414709848, 0.5403023059, 0.02511622291, 0.9996845379, 0.0006309573026],
        [0.9092974268, -0.4161468365, 0.05021659939, 0.9987383507, 0.001261914354],
        [0.1411200081, -0.9899924966, 0.075285293, 0.9971620353, 0.001892870903],
    ]
    four = [[0.8414709848, 0.5403023059, 0.009999833334, 0.9999500004]]
    for width, places, want in ((5, [0, 1, 2, 3], five), (4, [1], four)):
        for (got,) in everywhere(table_row(SinusoidalPositions(width), places)):
            np.testing.assert_allclose(got, want, atol=1e-6)


def test_26_half_split_is_whispers() -> None:
    want = sinusoids(1500, 384).numpy()
    for (got,) in everywhere(table_row(SinusoidalPositions(384, "half_split"), list(range(1500)))):
        # transformers computes the angles in float32, where they are off by 6e-5 at 1500
        np.testing.assert_allclose(got, want, atol=2e-4)
        np.testing.assert_allclose(got[:10], want[:10], atol=2e-6)


def test_26_a_learned_table_ends_with_an_error() -> None:
    op = LearnedPositions(8, 3)
    assert all(got.shape == (8, 3) for (got,) in everywhere(table_row(op, list(range(8)))))
    too_long, negative = table_row(op, list(range(9))), table_row(op, [0, -1])
    with pytest.raises(IndexError, match=r"position 8 .* 9, but max_length is 8"):
        run_torch(too_long)
    with pytest.raises(IndexError, match="position -1 is negative"):
        run_torch(negative)
    for case in (too_long, negative):
        with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match=r"idx=8 .* \[-8,7\]"):
            run_onnx(case, True)
        with pytest.raises(IndexError):
            reference(case)
