"""Costs: attention pays for the pairs its mask leaves, matrix products as torch counts them."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ROWS
from harness import Row, torch_arguments, torch_module
from torch.utils.flop_counter import FlopCounterMode

from seqspec.graph.dims import evaluate
from seqspec.graph.ir import Value
from seqspec.ops.attention import Attention
from seqspec.ops.linear import Linear, TiedLinear
from seqspec.ops.masks import Band


def values(row: Row) -> list[Value | None]:
    """The inputs with the sizes of this run."""
    return [
        None if x is None else Value(f"x{n}", tuple(evaluate(size, row.sizes) for size in x.shape), x.dtype)
        for n, x in enumerate(row.inputs)
    ]


@pytest.mark.parametrize("row", [r for r in ROWS if isinstance(r.op, Attention)], ids=str)
def test_attention_pays_for_visible_pairs(row: Row) -> None:
    q, k, v, _ = (None if x is None else x.array for x in row.inputs)
    # padding is not known when costs are counted: every token is real
    visible = row.op._visible(np, q, k, None)[0, 0].sum()
    batch, heads, _, width = q.shape
    assert row.op.flops(*values(row)) == batch * heads * visible * 2 * (width + v.shape[3])


@pytest.mark.parametrize("row", [r for r in ROWS if isinstance(r.op, Linear | TiedLinear)], ids=str)
def test_products_cost_what_torch_counts(row: Row) -> None:
    with FlopCounterMode(display=False) as counter:
        torch_module(row)(**torch_arguments(row))
    assert row.op.flops(*values(row)) == counter.get_total_flops()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_cost_is_a_number(row: Row) -> None:
    cost = row.op.flops(*values(row))
    assert isinstance(cost, int)
    assert cost >= 0


def test_a_window_on_a_long_text_is_counted_at_once() -> None:
    q, k = Value("q", (1, 8, 1_000_000, 64)), Value("k", (1, 8, 1_000_000, 64))
    window = Attention(Band(511, 0)).flops(q, k, k, None)
    assert window == 8 * 256 * (512 * 1_000_000 - 511 * 512 // 2)
