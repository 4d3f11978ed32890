"""The emitted attention as PyTorch code: which kernel it asks for, gradients, export, compilation, and chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cases import B, S, T, random
from harness import Array, Input, Row, run_torch, torch_arguments, torch_module
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import Dim, export

from seqspec.graph.dims import BATCH, PAST, TIME
from seqspec.ops.attention import Attention
from seqspec.ops.masks import CAUSAL, EVERYTHING, Band, normalise


def attention_row(op: Attention, queries: int, past: int, real: Array | None = None, groups: int = 2) -> Row:
    keys = queries + past
    inputs = (
        Input((B, 4, T, 6), random(2, 4, queries, 6)),
        Input((B, groups, S, 6), random(2, groups, keys, 6, seed=1)),
        Input((B, groups, S, 6), random(2, groups, keys, 6, seed=2)),
        Input((B, S), real, "bool"),
    )
    return Row("case", op, inputs, {BATCH: 2, TIME: queries, PAST: past})


@pytest.mark.parametrize(
    ("op", "queries", "past", "real", "mask_shape", "causal"),
    [
        (Attention(CAUSAL), 5, 0, None, None, True),
        (Attention(CAUSAL), 1, 4, None, None, False),
        (Attention(CAUSAL), 1, 0, None, None, False),
        (Attention(CAUSAL), 2, 4, None, (1, 1, 2, 6), False),
        (Attention(CAUSAL), 5, 0, np.ones((2, 5), bool), (2, 1, 5, 5), False),
        (Attention(EVERYTHING), 5, 4, None, None, False),
        (Attention(EVERYTHING), 5, 0, np.ones((2, 5), bool), (2, 1, 1, 5), False),
        (Attention(Band(2, 0)), 5, 0, None, (1, 1, 5, 5), False),
    ],
)
def test_the_kernel_gets_a_mask_only_where_one_is_needed(
    monkeypatch: pytest.MonkeyPatch,
    op: Attention,
    queries: int,
    past: int,
    real: Array | None,
    mask_shape: tuple[int, ...] | None,
    causal: bool,
) -> None:
    seen: dict[str, Any] = {}
    kernel = F.scaled_dot_product_attention

    def spy(q: Any, k: Any, v: Any, attn_mask: Any, dropout_p: float, is_causal: bool = False, **named: Any) -> Any:
        seen.update(shape=None if attn_mask is None else tuple(attn_mask.shape), causal=is_causal, **named)
        return kernel(q, k, v, attn_mask, dropout_p, is_causal, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    run_torch(attention_row(op, queries, past, real))
    assert (seen["shape"], seen["causal"], seen["enable_gqa"]) == (mask_shape, causal, True)
    run_torch(attention_row(op, queries, past, real, groups=4))
    assert seen["enable_gqa"] is False


@pytest.mark.parametrize("op", [Attention(CAUSAL), Attention(EVERYTHING), Attention(Band(1, 1))], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_are_finite_past_empty_rows(op: Attention, dtype: torch.dtype) -> None:
    real = np.array([[0, 0, 1, 0, 1], [0, 0, 0, 0, 0]], bool)
    for softcap in (None, 2.0):
        case = attention_row(Attention(op.mask, softcap=softcap), 5, 0, real)
        arguments = torch_arguments(case, dtype)
        for n in range(3):
            arguments[f"input_{n}"].requires_grad_()
        output = torch_module(case, dtype)(**arguments).output_0
        output.square().sum().backward()
        assert output[1].abs().sum() == 0
        for n in range(3):
            gradient = arguments[f"input_{n}"].grad
            assert torch.isfinite(gradient).all()
            assert gradient[0].abs().sum() > 0
            assert gradient[1].abs().sum() == 0


OPS = [Attention(CAUSAL), Attention(EVERYTHING), Attention(Band(3, 0)), Attention(CAUSAL, softcap=2.0)]


@pytest.mark.parametrize("op", OPS, ids=repr)
@pytest.mark.parametrize("masked", [True, False])
def test_export_with_any_length(op: Attention, masked: bool) -> None:
    real = np.array([[0, 1, 1, 1, 1], [1, 1, 0, 1, 1]], bool) if masked else None
    case = attention_row(op, 5, 0, real)
    arguments = torch_arguments(case)
    time = Dim("time")
    shapes = {f"input_{n}": {2: time} for n in range(3)} | {"input_3": {1: time} if masked else None}
    exported = export(torch_module(case), (), arguments, dynamic_shapes=shapes).module()
    longer = attention_row(op, 8, 0, None if real is None else np.tile(real, 2)[:, :8])
    got = exported(**torch_arguments(longer)).output_0
    np.testing.assert_allclose(got.numpy(), run_torch(longer)[0], atol=1e-12)


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_export_with_any_past(op: Attention) -> None:
    case = attention_row(op, 5, 4)
    time, total = Dim("time"), Dim("total")
    shapes = {"input_0": {2: time}, "input_1": {2: total}, "input_2": {2: total}, "input_3": None}
    exported = export(torch_module(case), (), torch_arguments(case), dynamic_shapes=shapes).module()
    other = attention_row(op, 3, 7)
    got = exported(**torch_arguments(other)).output_0
    np.testing.assert_allclose(got.numpy(), run_torch(other)[0], atol=1e-12)


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_compiles_as_one_graph_for_any_length(op: Attention) -> None:
    for real in (None, np.array([[0, 1, 1, 1, 1], [1, 1, 0, 1, 1]], bool)):
        case = attention_row(op, 5, 0, real)
        arguments = torch_arguments(case)
        for n, axis in enumerate((2, 2, 2, 1)):
            if arguments[f"input_{n}"] is not None:
                torch._dynamo.mark_dynamic(arguments[f"input_{n}"], axis)
        got = torch.compile(torch_module(case), backend="eager", fullgraph=True)(**arguments).output_0
        np.testing.assert_allclose(got.numpy(), run_torch(case)[0], atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([CAUSAL, Band(0, 0), Band(2, 0), Band(5, 0)]),
    st.lists(st.booleans(), min_size=7, max_size=7),
    st.integers(1, 6),
    st.booleans(),
)
def test_chunks_equal_the_whole(band: Band, real: list[bool], cut: int, capped: bool) -> None:
    op = Attention(band, softcap=2.0 if capped else None)
    mask = np.array([real, [True] * 7])
    whole = attention_row(op, 7, 0, mask)
    want = run_torch(whole)[0]
    q, k, v = (whole.inputs[n].array for n in range(3))  # type: ignore[union-attr]
    for start, end in ((0, cut), (cut, 7)):
        arrays = (q[:, :, start:end], k[:, :, :end], v[:, :, :end], mask[:, :end])
        inputs = tuple(Input(x.shape, a, x.dtype) for x, a in zip(whole.inputs, arrays, strict=True) if x is not None)
        chunk = Row("chunk", op, inputs, {BATCH: 2, TIME: end - start, PAST: start})
        np.testing.assert_allclose(run_torch(chunk)[0], want[:, :, start:end], atol=1e-12)
    assert normalise(band) == band


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([CAUSAL, EVERYTHING, Band(1, 1), Band(2, 0)]), st.lists(st.booleans(), min_size=9, max_size=9))
def test_padding_anywhere_changes_no_real_row(band: Band, real: list[bool]) -> None:
    places = np.flatnonzero(real)
    if not len(places):
        return
    op = Attention(band)
    padded = attention_row(op, 9, 0, np.array([real, real]))
    short = [x.array[:, :, places] for x in padded.inputs[:3]]  # type: ignore[union-attr]
    inputs = tuple(Input(x.shape, a) for x, a in zip(padded.inputs, short, strict=False) if x is not None)
    alone = Row("alone", op, (*inputs, None), {BATCH: 2, TIME: len(places), PAST: 0})
    np.testing.assert_allclose(run_torch(padded)[0][:, :, places], run_torch(alone)[0], atol=1e-12)
