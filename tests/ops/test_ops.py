"""Every op, through every face, against its NumPy reference; and every op has a row."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import ROWS
from harness import Input, Row, assert_close, reference, run_onnx, run_torch, shapes, torch_arguments, torch_module

import seqspec.ops
from seqspec.graph.dims import BATCH, TIME, dim
from seqspec.ops.base import Op
from seqspec.ops.dropout import Dropout

SPANS_NODES = {"FusedOp", "GroupQueryAttention", "MatMulNBits"}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_shapes_and_types_are_the_ones_inferred(row: Row) -> None:
    for value, got, shape in zip(row.outputs, reference(row), shapes(row), strict=True):
        if got is None:
            assert value.optional
        else:
            assert got.shape == shape
            assert got.dtype == {"float": np.float64, "int64": np.int64, "bool": bool}[value.dtype]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_torch(row: Row) -> None:
    for got, want in zip(run_torch(row), reference(row), strict=True):
        if row.one_row:
            assert got.shape[0] == 1
            got = np.broadcast_to(got, want.shape)
        assert_close(got, want, 1e-10)


@pytest.mark.parametrize("optimise", [False, True], ids=["as-written", "optimised"])
@pytest.mark.parametrize("row", [row for row in ROWS if row.onnx], ids=str)
def test_onnx(row: Row, optimise: bool) -> None:
    for got, want in zip(run_onnx(row, optimise), reference(row), strict=True):
        assert_close(got, want, 2e-6)


def test_dropout_trains() -> None:
    ones = Input((dim(BATCH), 1000), np.ones((4, 1000)))
    row = Row("ones", Dropout(0.25), (ones,), {BATCH: 4})
    torch.manual_seed(0)
    dropped = torch_module(row).train()(**torch_arguments(row)).output_0
    assert set(dropped.unique().tolist()) == {0.0, 1 / 0.75}
    assert abs((dropped == 0).double().mean().item() - 0.25) < 0.03


def test_every_op_has_a_row() -> None:
    tested = {type(row.op).__name__ for row in ROWS} | SPANS_NODES
    assert {op.__name__ for op in _concrete()} - tested == set()


def _concrete() -> Iterator[type[Op]]:
    for module in pkgutil.iter_modules(seqspec.ops.__path__, "seqspec.ops."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(kind, Op) and not inspect.isabstract(kind):
                yield kind


def test_which_ops_are_positionwise() -> None:
    found: dict[type[Op], bool] = {}
    for row in filter(_along_positions, ROWS):
        kind = type(row.op)
        found[kind] = found.get(kind, True) and _each_alone(row)
    assert {kind.__name__ for kind in found if found[kind]} == {k.__name__ for k in _concrete() if k.positionwise}


def _along_positions(row: Row) -> bool:
    """Whether all that it reads and makes is [B, T, …] and it carries nothing, so that positions may come alone."""
    whole = [x for x in row.inputs if x is not None and dim(TIME) in x.shape]
    shapes = [*(x.shape for x in whole), *(v.shape for v in row.outputs)]
    return bool(whole) and not row.region.states and all(len(s) == 3 and s[1] == dim(TIME) for s in shapes)


def _each_alone(row: Row) -> bool:
    """Whether every position gives alone what it gives among the others."""
    for place in range(row.sizes[TIME]):
        inputs = tuple(
            replace(x, array=x.array[:, place : place + 1]) if x is not None and dim(TIME) in x.shape else x
            for x in row.inputs
        )
        alone = reference(replace(row, inputs=inputs, sizes={**row.sizes, TIME: 1}))
        for got, among in zip(alone, reference(row), strict=True):
            if not np.allclose(got, among[:, place : place + 1], rtol=1e-12, atol=1e-12):
                return False
    return True
