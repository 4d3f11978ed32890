"""The small print of norms and activations: published pitfalls, number 34."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from harness import Array, Input, Row, onnx_session, reference, run_onnx, run_torch

from seqspec.graph.dims import BATCH, dim
from seqspec.ops.base import Op
from seqspec.ops.elementwise import Unary
from seqspec.ops.norm import LayerNorm, RMSNorm


class Weighted(Row):
    """A row whose scale is given, and whose shift is zero."""

    def weights(self) -> dict[str, Array]:
        given = {"op.weight": np.array(self.sizes["scale"]), "op.bias": np.zeros(4)}
        return {p.name: given[p.name] for p in self.region.params}


def row(op: Op, x: list[float], scale: list[float] | None = None) -> Row:
    inputs = (Input((dim(BATCH), len(x)), np.array([x])),)
    if scale is None:
        return Row("case", op, inputs, {BATCH: 1})
    return Weighted("case", op, inputs, {BATCH: 1, "scale": scale})  # type: ignore[dict-item]


def everywhere(case: Row) -> list[Array]:
    return [found[0][0] for found in (reference(case), run_torch(case), run_onnx(case, False), run_onnx(case, True))]


def test_34_eps_counts() -> None:
    x, ones = [1.0, 1.002, 0.998, 1.0], [1.0] * 4
    large, small = [0.0, 0.5773502692, -0.5773502692, 0.0], [0.0, 1.414213209, -1.414213209, 0.0]
    for eps, want, wrong in ((1e-5, large, small), (1e-12, small, large)):
        # float32 holds these x to 6e-8, a 2e-5 part of their differences
        for got, tolerance in zip(everywhere(row(LayerNorm(4, eps), x, ones)), (1e-9, 1e-9, 1e-4, 1e-4), strict=True):
            np.testing.assert_allclose(got, want, atol=tolerance)
            assert not np.allclose(got, wrong, atol=0.1)


@pytest.mark.parametrize("op", [LayerNorm(4, 1e-8), RMSNorm(4, 1e-8)], ids=repr)
def test_34_eps_is_kept_in_half_precision(op: Op) -> None:
    # 1e-8 is 0 in float16: a constant or zero vector would give NaN
    (got,) = run_torch(row(op, [0.0] * 4, [1.0] * 4), torch.float16)
    assert got.tolist() == [[0.0] * 4]


def test_34_rms_norm_scales_by_all_of_its_weight() -> None:
    x, stored = [1.0, -2.0, 3.0, 0.5], [15.8125, 0.1, -0.2, 0.0]
    want = [8.907478851, -1.165588311, 1.271550884, 0.2649064342]
    for got in everywhere(row(RMSNorm(4, 1e-6), x, [1 + w for w in stored])):
        np.testing.assert_allclose(got, want, rtol=1e-6)
        assert not np.allclose(got, [8.377665983, -0.1059625737, -0.3178877211, 0.0], atol=0.1)


def test_34_rms_norm_rounds_once_in_bfloat16() -> None:
    x = [0.30078125, -1.703125, 2.90625, 0.6015625]
    weight = [1.1015625, 0.8984375, 1.296875, 0.69921875]
    (got,) = run_torch(row(RMSNorm(4, 1e-6), x, weight), torch.bfloat16)
    assert got.tolist() == [[0.193359375, -0.890625, 2.1875, 0.2451171875]]


def test_34_gelu_by_erf_and_by_tanh() -> None:
    x = [-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]
    forms = {
        "gelu": [
            -0.004049694095, -0.0455002639, -0.1586552539, -0.1542687694, 0.0,
            0.3457312306, 0.8413447461, 1.954499736, 2.995950306,
        ],
        "gelu_tanh": [
            -0.003637392082, -0.04540230591, -0.1588080094, -0.1542859902, 0.0,
            0.3457140098, 0.8411919906, 1.954597694, 2.996362608,
        ],
    }  # fmt: skip
    for (kind, want), wrong in zip(forms.items(), reversed(forms.values()), strict=True):
        for got in everywhere(row(Unary(kind), x)):
            np.testing.assert_allclose(got, want, atol=1e-6)
            assert np.abs(got - wrong).max() > 1e-4


def test_34_layer_norm_without_shift_has_none() -> None:
    op = LayerNorm(4, 1e-5, bias=False)
    case = row(op, [1.0, -2.0, 3.0, 0.5], [1.0, 2.0, 1.0, 1.0])
    for got in everywhere(case):
        np.testing.assert_allclose(got, [0.21055839, -2.94781746, 1.33353647, -0.07018613], atol=1e-6)
    assert [p.shape for p in op.params()] == [(4,)]
    assert [i.name for i in onnx_session(replace(case), False).get_inputs()] == ["input_0"]
