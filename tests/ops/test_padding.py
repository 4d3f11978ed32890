"""What padding is known from, in PyTorch; and that no op lets a padded position reach a real one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from cases import IDS, MASKS, NO_PAST, SIZES, B, S, T, X, ints, random
from harness import Input, Row, assert_close, run_torch, torch_arguments, torch_module

from seqspec.graph.dims import PAST
from seqspec.ops.padding import Padding, ZeroPadding
from seqspec.ops.pool import Pool
from seqspec.ops.positions import Positions

LEFT_OUT = Input((B, S), None, "int64")
ONES = np.ones((3, 4), bool)


@pytest.mark.parametrize(
    "op", [Padding(0, looks_back=True), Padding(0, True, True), Padding(None, False, True, True)], ids=repr
)
def test_a_past_of_which_nothing_is_known_is_real(op: Padding) -> None:
    # a past without padding leaves no mask behind: its length is the cache's
    unknown, known = (Row("case", op, (IDS, LEFT_OUT), SIZES, (past,)) for past in (None, ONES))
    assert_close(run_torch(unknown)[0], run_torch(known)[0], 0)
    assert run_torch(unknown)[0].shape == (3, 9)


def test_a_chunk_of_which_nothing_is_known_is_real() -> None:
    chunk = Input((B, S), MASKS[5].astype(int), "int64")
    row = Row("case", Padding(looks_back=True), (X, chunk), SIZES, (None,))
    assert_close(run_torch(row)[0], np.concatenate([ONES, MASKS[5]], 1), 0)


def test_the_first_position_is_kept_where_a_sequence_starts_only() -> None:
    start = Row("case", Padding(0, True, True), (IDS, LEFT_OUT), NO_PAST, (None,))
    later = Row("case", Padding(0, True, True), (IDS, LEFT_OUT), SIZES, (ONES,))
    assert run_torch(start)[0][:, 0].tolist() == [True, True, True]
    assert run_torch(later)[0][:, 4].tolist() == [True, False, False]
    whole = ints((B, S), (IDS.array != 0).astype(int))
    assert run_torch(replace(start, inputs=(IDS, whole)))[0][:, 0].tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (np.ones((3, 7), int), ValueError, r"attention_mask is \[3, 7\], the input \[3, 5\] after a past of 4"),
        (np.ones((1, 5), int), ValueError, r"attention_mask is \[1, 5\]"),
        (np.zeros((3, 9)), TypeError, "attention_mask is 1 for real tokens and 0 for padding"),
    ],
)
def test_a_mask_that_fits_nothing_is_refused(given: Any, error: type[Exception], message: str) -> None:
    row = Row("case", Padding(0, looks_back=True), (IDS, Input((B, S), given, "int64")), SIZES, (ONES,))
    with pytest.raises(error, match=message):
        run_torch(row)


def test_positions_go_on_after_a_past_without_padding() -> None:
    row = Row("case", Positions(looks_back=True), (IDS, Input((B, S), None, "bool"), None), SIZES)
    assert run_torch(row)[0].tolist() == [[4, 5, 6, 7, 8]]


@pytest.mark.parametrize("length", [0, 1])
def test_chunks_of_no_and_one_token(length: int) -> None:
    sizes = {**SIZES, "sequence_length": length}
    ids = ints((B, T), np.ones((3, length), int))
    whole = np.concatenate([MASKS[5][:, :4], np.ones((3, length), bool)], 1)
    row = Row("case", Positions(looks_back=True), (ids, Input((B, S), whole, "bool"), None), sizes)
    assert run_torch(row)[0].tolist() == [[3], [2], [0]] if length else [[], [], []]
    features = Input((B, T, 6), random(3, length, 6))
    row = Row("case", ZeroPadding(), (features, Input((B, S), whole, "bool")), sizes)
    assert_close(run_torch(row)[0], features.array, 0)
    assert sizes[PAST] == 4


@pytest.mark.parametrize("kind", ["first", "last", "mean", "max"])
def test_pooled_gradients_stay_with_real_tokens(kind: Any) -> None:
    spoilt = np.where(MASKS[5][..., None], X.array, np.nan)
    row = Row("case", Pool(kind), (Input((B, T, 6), spoilt), Input((B, T), MASKS[5], "bool")), SIZES)
    arguments = torch_arguments(row)
    arguments["input_0"].requires_grad_()
    torch_module(row)(**arguments).output_0.sum().backward()
    gradient = arguments["input_0"].grad
    assert gradient[~torch.tensor(MASKS[5])].abs().sum() == 0
    # each real sequence's pooled vector moves by 1 when all of its tokens do
    assert gradient.sum(1).round(decimals=9).tolist() == [[1.0] * 6, [1.0] * 6, [0.0] * 6]


@pytest.mark.parametrize("masked", [True, False])
def test_a_mean_of_large_numbers_in_half_precision(masked: bool) -> None:
    x = np.full((1, 5000, 2), 50.0)  # their sum is past 65504
    mask = Input((B, T), np.ones((1, 5000), bool), "bool") if masked else None
    row = Row("case", Pool("mean"), (Input((B, T, 2), x), mask), {"batch_size": 1, "sequence_length": 5000})
    np.testing.assert_allclose(run_torch(row, torch.float16)[0], 50.0, rtol=2e-3)
