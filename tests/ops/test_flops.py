"""Costs: attention pays for the pairs its mask leaves, matrix products as torch counts them."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ROWS
from cases_attention import EXPRESSIONS
from harness import Array, Row, torch_arguments, torch_module
from torch.utils.flop_counter import FlopCounterMode

from seqspec.graph.dims import evaluate
from seqspec.graph.ir import Value
from seqspec.ops.attention import Attention
from seqspec.ops.conv import Conv1d, PatchEmbedding
from seqspec.ops.linear import Linear, TiedLinear
from seqspec.ops.masks import AllOf, AnyOf, Band, BlockSparse, Global, Mask
from seqspec.ops.pairs import pairs
from seqspec.ops.visible import Visible


def values(row: Row) -> list[Value | None]:
    """The inputs with the sizes of this run."""
    return [
        None if x is None else Value(f"x{n}", tuple(evaluate(size, row.sizes) for size in x.shape), x.dtype)
        for n, x in enumerate(row.inputs)
    ]


def whole(mask: Mask, queries: int, keys: int) -> Array:
    """[T, S] of a mask: one document, no prefix, and given masks of ones."""
    op, place = Visible(mask), np.arange(keys)[None]
    query, key = place[:, None, keys - queries :, None], place[:, None, None]
    documents = (np.zeros((1, keys), int), query, key) if op.has_documents else ()
    prefix = (np.zeros(1, int),) if op.has_prefix else ()
    given = [np.ones((1, queries, keys), bool) for _ in op.given]
    return op.reference(np, {}, query, key, None, *documents, *prefix, *given)[0][0, 0]


@pytest.mark.parametrize("row", [r for r in ROWS if isinstance(r.op, Attention)], ids=str)
def test_attention_pays_for_visible_pairs(row: Row) -> None:
    q, k, v = (x.array for x in row.inputs[:3])
    # what is padded and what is given at run time is not known when costs are counted: every token is real
    queries, keys = q.shape[2], k.shape[2]
    visible = np.sum(whole(row.op.mask, queries, keys))
    batch, heads, _, width = q.shape
    assert row.op.flops(*values(row)) == batch * heads * visible * 2 * (width + v.shape[3])


PRODUCTS = Linear | TiedLinear | Conv1d | PatchEmbedding


@pytest.mark.parametrize("row", [r for r in ROWS if isinstance(r.op, PRODUCTS)], ids=str)
def test_products_cost_what_torch_counts(row: Row) -> None:
    with FlopCounterMode(display=False) as counter:
        torch_module(row)(**torch_arguments(row))
    assert row.op.flops(*values(row)) == counter.get_total_flops()


@pytest.mark.parametrize("row", [r for r in ROWS if isinstance(r.op, PRODUCTS)], ids=str)
@pytest.mark.parametrize("learns", [True, False])
def test_gradients_of_products_cost_what_torch_counts(row: Row, learns: bool) -> None:
    """Of the weights, and of x where something before it learns."""
    arguments = torch_arguments(row)
    first = next(iter(arguments))
    for name, x in arguments.items():
        x.requires_grad_(name != first or learns)
    with FlopCounterMode(display=False) as counter:
        y = torch_module(row)(**arguments)[0]
        forward = counter.get_total_flops()
        y.sum().backward()
    takes = (learns, *[True] * (len(row.inputs) - 1))
    # torch counts the gradient of a grouped convolution's weights as if all inputs met all outputs
    beside = (getattr(row.op, "groups", 1) - 1) * forward
    assert row.op.backward(takes, *values(row)) == counter.get_total_flops() - forward - beside


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_what_is_kept_has_sizes(row: Row) -> None:
    """Inputs, outputs, and what is stored beside them in the sizes of the inputs."""
    inputs = [x and Value(f"x{n}", x.shape, x.dtype) for n, x in enumerate(row.inputs)]
    outputs = [Value(f"y{n}", t.shape, t.dtype) for n, t in enumerate(row.op.infer(*inputs))]
    takes = tuple(x is not None and x.dtype == "float" for x in inputs)
    for value in row.op.keeps(takes, inputs, outputs):
        assert value in (None, *inputs, *outputs) or value.name == ""
        assert value is None or all(evaluate(size, row.sizes) >= 0 for size in value.shape)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_cost_is_a_number(row: Row) -> None:
    inputs = values(row)
    takes = tuple(x is not None and x.dtype == "float" for x in inputs)
    for cost in (row.op.flops(*inputs), row.op.backward(takes, *inputs)):
        assert isinstance(cost, int)
        assert cost >= 0


def test_a_window_on_a_long_text_is_counted_at_once() -> None:
    q, k = Value("q", (1, 8, 1_000_000, 64)), Value("k", (1, 8, 1_000_000, 64))
    window = Attention(Band(511, 0)).flops(q, k, k, None)
    assert window == 8 * 256 * (512 * 1_000_000 - 511 * 512 // 2)


@pytest.mark.parametrize("mask", [*EXPRESSIONS, BlockSparse(3, 1, 1, 2, 7), BlockSparse(1, 0, 2, 3, 1)], ids=repr)
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 9), (4, 11), (23, 23), (0, 5)])
def test_pairs_are_counted_exactly(mask: Mask, queries: int, keys: int) -> None:
    assert pairs(mask, queries, keys) == whole(mask, queries, keys).sum()


def test_sparse_masks_cost_in_proportion_to_the_length() -> None:
    longformer = AnyOf((Band(64, 64), Global((0,))))
    bigbird = AnyOf((BlockSparse(16, 1, 1, 3, 0), AllOf((Global((5,)), Band(None, 0)))))
    for mask in (longformer, bigbird):
        half, whole = pairs(mask, 1024, 1024), pairs(mask, 2048, 2048)
        assert 1.9 < whole / half < 2.3
