"""Differences between two sets of outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = Any
Arrays = Mapping[str, Array]
Costs = Callable[[], Mapping[str, float]]


def same(got: Arrays, want: Arrays, tolerance: float, what: str = "") -> float:
    """The largest difference, over the largest value or 1; AssertionError past the tolerance. 0 asks for equal bits."""
    assert got.keys() == want.keys(), f"{what}: {sorted(got)} are not {sorted(want)}"
    return max((_same(got[name], want[name], tolerance, f"{what} {name}") for name in want), default=0.0)


def _same(got: Array, want: Array, tolerance: float, what: str) -> float:
    assert got.shape == want.shape, f"{what}: {got.shape} is not {want.shape}"
    finite(got, what)
    finite(want, what)
    if got.dtype == bool or want.size == 0:
        assert np.array_equal(got, want), f"{what} differs"
        return 0.0
    error = float(np.abs(got - want).max()) / max(1.0, float(np.abs(want).max()))
    assert error <= tolerance, f"{what} is off by {error:.3g}, more than {tolerance:.3g}:\n{got}\nis not\n{want}"
    return error


def finite(array: Array, what: str) -> None:
    assert np.isfinite(array).all(), f"{what} is not finite:\n{array}"


def same_single(got: Arrays, want: Arrays, exact: Arrays, costs: Costs, what: str = "") -> float:
    """Compares float32 with float32: 2e-6 of the largest value, or at most 4 times as far from `exact` as `want`.

    If that is not enough, `want` may be accurate by luck: `costs` are the float32 errors of nearby models.
    """
    assert got.keys() == want.keys(), f"{what}: {sorted(got)} are not {sorted(want)}"
    worst = 0.0
    for name in want:
        assert got[name].shape == want[name].shape, f"{what} {name}: {got[name].shape} is not {want[name].shape}"
        finite(got[name], f"{what} {name}")
        if not want[name].size:
            continue
        error = np.abs(got[name] - want[name]).max() / max(np.abs(want[name]).max(), 1e-30)
        ours, theirs = (float(np.abs(x - exact[name]).max()) for x in (got[name], want[name]))
        near = error <= 2e-6 or ours <= 4 * theirs + 1e-7
        assert near or ours <= 4 * costs()[name], (
            f"{what} {name} is off by {error:.3g} of the largest value: {ours:.3g} from float64, torch {theirs:.3g}"
        )
        worst = max(worst, float(error))
    return worst
