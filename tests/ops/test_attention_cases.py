"""Attention against numbers worked out by hand and what real libraries got wrong: published pitfalls by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from harness import Array, Input, Row, reference, run_onnx, run_torch, torch_arguments, torch_module

from seqspec.graph.dims import BATCH, PAST, TIME, dim
from seqspec.ops.attention import Attention
from seqspec.ops.masks import CAUSAL, EVERYTHING, AllOf, Band

Q = [[0.9854, 0.8632], [0.335, -0.3508], [-0.8716, -0.9825], [-0.6313, 0.0168], [0.657, 0.9882], [0.8546, 0.3191]]
K = [[0.4274, -0.2555], [-0.8183, -0.9962], [-0.7055, -0.0831], [0.5784, 0.9679], [0.9022, 0.4121], [-0.2718, -0.8278]]
V = [[-0.7568, -0.9999], [-0.7728, -0.1822], [0.4941, 0.938], [0.9407, 0.501], [-0.1743, -0.7677], [-1.0, -0.762]]
LARGE_Q = [[7.8836, 6.9057], [2.6799, -2.8063], [-6.9726, -7.8596]]
LARGE_K = [[3.419, -2.0443], [-6.5462, -7.9693], [-5.6443, -0.6647]]


def row(op: Attention, q: Any, k: Any, v: Any, real: Any = None) -> Row:
    """One head of one sequence, or [heads][time][width]."""
    q, k, v = (np.array(x, float) for x in (q, k, v))
    q, k, v = (x[None, None] if x.ndim == 2 else x[None] for x in (q, k, v))
    batch, time, past = dim(BATCH), dim(TIME), dim(PAST)
    queries, keys = q.shape[2], k.shape[2]
    mask = None if real is None else Input((batch, past + time), np.array(real, bool)[None], "bool")
    inputs = (
        Input((batch, q.shape[1], time, q.shape[3]), q),
        Input((batch, k.shape[1], past + time, k.shape[3]), k),
        Input((batch, v.shape[1], past + time, v.shape[3]), v),
        mask,
    )
    return Row("case", op, inputs, {BATCH: 1, TIME: queries, PAST: keys - queries})


def everywhere(case: Row) -> list[Array]:
    """The output by every face, without the batch and, where there is one, the head."""
    found = [reference(case)[0], run_torch(case)[0], run_onnx(case, False)[0], run_onnx(case, True)[0]]
    return [x[0, 0] if x.shape[1] == 1 else x[0] for x in found]


def check(case: Row, want: Any, wrong: Any = None) -> None:
    for got in everywhere(case):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        if wrong is not None:
            assert not np.allclose(got, wrong, rtol=1e-5, atol=1e-5)


def test_01_a_row_that_sees_nothing_gives_zeros() -> None:
    # the padding says [1, 1, 0] to all, causality takes the rest: rows 0 and 1 of the case; row 2 of its own
    check(row(Attention(CAUSAL), Q[:2], K[:2], V[:2]), [[-0.7568, -0.9999], [-0.7643550617, -0.613789127]])
    for op in (Attention(CAUSAL), Attention(EVERYTHING), Attention(CAUSAL, softcap=50.0), Attention(Band(1, 0))):
        check(row(op, Q[:3], K[:3], V[:3], [0, 0, 0]), np.zeros((3, 2)), np.tile(np.mean(V[:3], 0), (3, 1)))


@pytest.mark.parametrize("op", [Attention(CAUSAL), Attention(CAUSAL, softcap=50.0), Attention(Band(3, 0))], ids=repr)
def test_01_gradients_past_rows_that_see_nothing(op: Attention) -> None:
    # left padding: query 0 sees nothing, queries 1 and 2 are the case's rows 0 and 1
    q, k, v = ([[9.0, 9.0], *x[:2]] for x in (Q, K, V))
    case = row(op, q, k, v, [0, 1, 1])
    module, arguments = torch_module(case), torch_arguments(case)
    for name in ("input_0", "input_1", "input_2"):
        arguments[name].requires_grad_()
    output = module(**arguments).output_0
    output.sum().backward()
    assert output[0, 0, 0].tolist() == [0.0, 0.0]
    gradient = arguments["input_2"].grad[0, 0]
    if op.softcap is None:
        want = [[0.0, 0.0], [1.527808642, 1.527808642], [0.4721913575, 0.4721913575]]
        np.testing.assert_allclose(gradient.numpy(), want, rtol=1e-5, atol=1e-9)
    for name in ("input_0", "input_1", "input_2"):
        assert torch.isfinite(arguments[name].grad).all()


def test_05_one_query_over_a_cache_sees_all_of_it() -> None:
    whole = [[-0.7568, -0.9999], [-0.7643550617, -0.613789127], [-0.4166447538, 0.002500386956]]
    last = [[-0.07106192771, 0.1346645943]]
    top_left = [[-0.7568, -0.9999]]
    check(row(Attention(CAUSAL), Q[:4], K[:4], V[:4]), whole + last)
    check(row(Attention(CAUSAL), Q[3:4], K[:4], V[:4]), last, top_left)
    check(row(Attention(CAUSAL), Q[3:4], K[:4], V[:4], [1, 1, 1, 1]), last, top_left)
    check(row(Attention(CAUSAL), Q[2:4], K[:4], V[:4]), whole[2:] + last)


def test_07_true_is_real_and_padding_acts_with_causality() -> None:
    scaled = [np.array(x[:3]) * 1.5 for x in (Q, K)]
    flipped = [[0.4941, 0.938]] * 3
    both = [[-0.7568, -0.9999], [-0.7638029141, -0.6420073202], [-0.7719536012, -0.2254562663]]
    alone = [[-0.7575806928, -0.9600017197], *both[1:]]
    check(row(Attention(EVERYTHING), *scaled, V[:3], [1, 1, 0]), alone, flipped)
    ignored = np.array([[1.0, 0, 0], [0.5623178674, 0.4376821326, 0], [0.04429032309, 0.7929570937, 0.1627525833]])
    check(row(Attention(CAUSAL), *scaled, V[:3], [1, 1, 0]), both, ignored @ np.array(V[:3]))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)], ids=str)
@pytest.mark.parametrize("softcap", [None, 50.0])
def test_09_masks_meet_in_half_precision(dtype: torch.dtype, tolerance: float, softcap: float | None) -> None:
    case = row(Attention(CAUSAL, softcap=softcap), LARGE_Q, LARGE_K, V[:3], [0, 0, 1])
    (got,) = run_torch(case, dtype)
    np.testing.assert_allclose(got[0, 0], [[0, 0], [0, 0], [0.4941, 0.938]], atol=tolerance)
    check(case, [[0, 0], [0, 0], [0.4941, 0.938]])


def test_30_neighbouring_query_heads_share_a_key_head() -> None:
    q = [
        Q[:3],
        [[-0.6313, 0.0168], [0.657, 0.9882], [0.8546, 0.3191]],
        [[-0.3665, -0.8797], [-0.9792, -0.6181], [0.0336, 0.6696]],
        [[0.9906, 0.8457], [0.3031, -0.3821], [-0.8876, -0.9756]],
    ]
    shared = [
        [[-0.7568, -0.9999], [-0.7643550617, -0.613789127], [-0.4166447538, 0.002500386956]],
        [[-0.7568, -0.9999], [-0.7608069784, -0.795118358], [-0.4190406746, -0.3020150423]],
        [[0.9407, 0.501], [0.3779817667, -0.1392875539], [0.1764084442, -0.1881757821]],
        [[0.9407, 0.501], [0.3222403413, -0.2027127973], [-0.6375487934, -0.6065768495]],
    ]
    tiled = [
        shared[0],
        [[0.9407, 0.501], [0.4492159721, -0.058233889], [0.1435331173, -0.2534950409]],
        [[-0.7568, -0.9999], [-0.769057126, -0.3734842528], [-0.2785667524, -0.04880224081]],
        shared[3],
    ]
    for real in (None, [1, 1, 1]):
        check(row(Attention(CAUSAL), q, [K[:3], K[3:]], [V[:3], V[3:]], real), shared, tiled)
        # a cap far above the scores changes nothing that these digits show
        check(row(Attention(CAUSAL, softcap=1e3), q, [K[:3], K[3:]], [V[:3], V[3:]], real), shared, tiled)


def test_35_a_window_of_three_counts_the_query() -> None:
    whole = [
        [-0.7568, -0.9999],
        [-0.7643550617, -0.613789127],
        [-0.4166447538, 0.002500386956],
        [0.0869923665, 0.3961679487],
        [0.4549945941, 0.07002686059],
        [0.1435331173, -0.2534950409],
    ]
    of_four = [*whole[:3], [-0.07106192771, 0.1346645943], [0.3805492797, 0.05473349797], [0.1884387392, -0.1008713096]]
    window = Attention(AllOf((CAUSAL, Band(2, 2))))
    check(row(window, Q, K, V), whole, of_four)
    check(row(window, Q, K, V, [1] * 6), whole, of_four)
    check(row(window, Q[5:], K, V), whole[5:], of_four[5:])
    check(row(window, Q[5:], K[3:], V[3:]), whole[5:])  # the last three keys are all it needs
    check(row(Attention(AllOf((CAUSAL, Band(0, 0)))), Q, K, V), V)
    for got, causal in zip(
        everywhere(row(Attention(Band(6, 0)), Q, K, V)), everywhere(row(Attention(CAUSAL), Q, K, V)), strict=True
    ):
        np.testing.assert_allclose(got, causal, rtol=1e-5, atol=1e-6)


def test_35_padding_does_not_use_up_the_window() -> None:
    window = Attention(Band(2, 0))
    whole = everywhere(row(window, Q, K, V))[0]
    holes = [0, 1, 1, 0, 0, 1, 0, 1, 1, 1]
    places = np.flatnonzero(holes)
    spread = [np.full((10, 2), 7.0) for _ in range(3)]
    for into, values in zip(spread, (Q, K, V), strict=True):
        into[places] = values
    for got in everywhere(row(window, *spread, holes)):
        np.testing.assert_allclose(got[places], whole, rtol=1e-5, atol=1e-6)


def test_36_scores_are_capped_before_the_mask() -> None:
    capped = [[-0.7568, -0.9999], [-0.7588983459, -0.8926614102], [-0.1393986464, 0.3778057065]]
    masked_first = [[-0.7567274336, -0.9997380727], [-0.7588411713, -0.8925778768], [-0.1393986464, 0.3778057065]]
    uncapped = [[-0.7568, -0.9999], [-0.7568128459, -0.9992434925], [-0.7728, -0.1822]]
    for real in (None, [1, 1, 1]):
        case = row(Attention(CAUSAL, softcap=5.0), LARGE_Q, LARGE_K, V[:3], real)
        check(case, capped, masked_first)
        check(case, capped, uncapped)
        check(row(Attention(CAUSAL), LARGE_Q, LARGE_K, V[:3], real), uncapped, capped)


def test_dropout_acts_while_training_only() -> None:
    ones = np.ones((64, 2))
    case = row(Attention(EVERYTHING, dropout=0.5), ones, ones, ones)
    module, arguments = torch_module(case), torch_arguments(case)
    torch.manual_seed(0)
    np.testing.assert_allclose(module(**arguments).output_0.numpy(), 1.0)
    trained = module.train()(**arguments).output_0
    assert trained.std() > 0.05
    assert abs(trained.mean() - 1) < 0.05
    capped = row(Attention(EVERYTHING, dropout=0.5, softcap=1.0), ones, ones, ones)
    trained = torch_module(capped).train()(**arguments).output_0
    assert trained.std() > 0.05
    assert abs(trained.mean() - 1) < 0.05
