"""What stands around attention, exported by torch with any batch, length and past."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import MASKS, SIZES, B, S, T, X, ints, random
from harness import Array, Input, Row, run_torch, torch_arguments, torch_module
from torch.export import Dim, export

from seqspec.graph.dims import BATCH, PAST, TIME
from seqspec.ops.embedding import Embedding
from seqspec.ops.padding import Padding, ZeroPadding
from seqspec.ops.pool import Pool
from seqspec.ops.positions import LearnedPositions, Positions, SinusoidalPositions
from seqspec.ops.rope import Rope, RopeTables
from seqspec.ops.rope_scaling import Llama3
from seqspec.ops.shape import MergeHeads, SplitHeads

OTHER = {BATCH: 2, TIME: 7, PAST: 0}


def row(op: Any, *inputs: Input, sizes: Any = None) -> Row:
    return Row("case", op, inputs, sizes or {**SIZES, PAST: 0})


def other(x: Input) -> Input:
    """The same kind of input at other sizes."""
    shape = [OTHER.get(str(size), size) for size in x.shape]
    array: Array = random(*map(int, shape))
    if x.dtype == "int64":
        array = (np.abs(array) * 4).astype(np.int64) % 5
    return Input(x.shape, array > -0.5 if x.dtype == "bool" else array, x.dtype)


PLACES = ints((B, T), np.arange(15).reshape(3, 5) % 5)
MASK = Input((B, T), MASKS[5], "bool")
ROWS = [
    row(Embedding(9, 4), PLACES),
    row(Padding(0), PLACES, PLACES),
    row(ZeroPadding(), X, MASK),
    row(Positions(), X, MASK, Input((B, T), None, "int64")),
    row(LearnedPositions(5, 3), PLACES),
    row(SinusoidalPositions(5), PLACES, X),
    row(SinusoidalPositions(5, "half_split"), PLACES, X),
    row(RopeTables(6, 1e4, Llama3(2.0, 1.0, 4.0, 64)), PLACES, X),
    row(SplitHeads(2, 3), X),
    *(row(Pool(kind), X, MASK) for kind in ("first", "last", "mean", "max")),
]
HEADS, TABLE = Input((B, 2, T, 6), random(3, 2, 5, 6)), Input((B, T, 2), random(3, 5, 2))
ROWS += [
    row(MergeHeads(), HEADS),
    row(Rope("half_split", 4), HEADS, TABLE, TABLE),
    row(Rope("interleaved", 4), HEADS, TABLE, TABLE),
]


@pytest.mark.parametrize("case", ROWS, ids=lambda case: repr(case.op))
def test_any_batch_and_length(case: Row) -> None:
    batch, time = Dim("batch"), Dim("time")
    sizes = {B: batch, T: time}
    shapes = {
        name: None if x.array is None else {n: sizes[size] for n, size in enumerate(x.shape) if size in sizes}
        for name, x in case.given
    }
    exported = export(torch_module(case), (), torch_arguments(case), dynamic_shapes=shapes).module()
    inputs = [x if x is None or x.array is None else other(x) for x in case.inputs]
    changed = row(case.op, *inputs, sizes=OTHER)
    out, want = exported(**torch_arguments(changed)), run_torch(changed)
    for n, array in enumerate(want):
        np.testing.assert_allclose(getattr(out, f"output_{n}").detach().numpy(), array, atol=1e-12)


def looking_back(op: Padding | Positions, sizes: dict[str, int]) -> Row:
    """The op after a past, with a mask over everything."""
    batch, length, past = sizes[BATCH], sizes[TIME], sizes[PAST]
    whole = random(batch, past + length) > -0.5
    ids = ints((B, T), np.arange(batch * length).reshape(batch, length) % 3)
    if isinstance(op, Padding):
        return Row("case", op, (ids, Input((B, S), whole.astype(int), "int64")), sizes, (whole[:, :past],))
    return Row("case", op, (ids, Input((B, S), whole, "bool"), None), sizes)


@pytest.mark.parametrize("op", [Padding(0, True, True), Positions(looks_back=True)], ids=repr)
def test_any_past(op: Padding | Positions) -> None:
    case, longer = looking_back(op, SIZES), looking_back(op, {BATCH: 2, TIME: 6, PAST: 9})
    arguments = torch_arguments(case)
    masks = {name: {0: Dim.AUTO, 1: Dim.AUTO} for name, _ in case.given}
    cache = {0: Dim.AUTO, 2: Dim.AUTO}
    state = {name: masks["input_0"] if past.dim() == 2 else cache for name, past in arguments["state"].items()}
    shapes = {**masks, "cached": cache, "state": state}
    exported = export(torch_module(case), (), arguments, dynamic_shapes=shapes).module()
    got = exported(**torch_arguments(longer)).output_0
    np.testing.assert_array_equal(got.numpy(), run_torch(longer)[0])
