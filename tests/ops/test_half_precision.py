"""Every op that attends, places, pools or normalises, in half precision: the dtype stays, and nothing overflows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from cases import attention, padding, pools, positions, simple
from cases_attention import ROWS as ATTENTION
from harness import Row, reference, torch_arguments, torch_module

SEEN = [*simple(), *padding(), *positions(), *attention(), *ATTENTION, *pools()]


@pytest.mark.parametrize(
    ("row", "dtype"),
    [pytest.param(row, dtype, id=f"{row}-{dtype}") for row, dtype in product(SEEN, (torch.float16, torch.bfloat16))],
)
def test_half_precision(row: Row, dtype: torch.dtype) -> None:
    with torch.no_grad():
        out = torch_module(row, dtype)(**torch_arguments(row, dtype))
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    for n, want in enumerate(reference(row)):
        got = getattr(out, f"output_{n}")
        if want is None or want.dtype.kind in "bi":
            continue
        assert got.dtype == dtype
        np.testing.assert_allclose(got.double().numpy(), want, atol=tolerance * np.abs(want).max(), rtol=0)
