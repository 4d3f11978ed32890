"""Mask expressions against the definition, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqspec.ops.masks import CAUSAL, EVERYTHING, AllOf, AnyOf, Band, Mask, implies_causal, normalise

bounds = st.none() | st.integers(0, 6)
bands = st.builds(Band, bounds, bounds)
masks = st.recursive(
    bands,
    lambda inner: (
        st.builds(AllOf, st.lists(inner, max_size=3).map(tuple))
        | st.builds(AnyOf, st.lists(inner, min_size=1, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


def allowed(mask: Mask, distance: int) -> bool:
    match mask:
        case Band(left, right):
            return (left is None or -left <= distance) and (right is None or distance <= right)
        case AllOf(items):
            return all(allowed(item, distance) for item in items)
        case AnyOf(items):
            return any(allowed(item, distance) for item in items)


@given(masks)
def test_normalise_allows_the_same_pairs(mask: Mask) -> None:
    band = normalise(mask)
    assert [allowed(mask, d) for d in range(-9, 10)] == [allowed(band, d) for d in range(-9, 10)]
    assert implies_causal(mask) == (not any(allowed(mask, d) for d in range(1, 10)))


@given(bands, st.integers(0, 12), st.integers(0, 12))
def test_pairs_are_counted_exactly(band: Band, queries: int, past: int) -> None:
    keys = past + queries
    distance = np.arange(keys)[None] - (past + np.arange(queries))[:, None]
    assert band.pairs(queries, keys) == sum(allowed(band, int(d)) for d in distance.ravel())


def test_known_forms() -> None:
    window = Band(2, 2)
    assert normalise(AllOf((CAUSAL, window))) == Band(2, 0)
    assert normalise(AnyOf((CAUSAL, window))) == Band(None, 2)
    assert normalise(AllOf(())) == EVERYTHING
    assert not implies_causal(window)


@pytest.mark.parametrize("make", [lambda: Band(-1, 0), lambda: Band(0, -1), lambda: AnyOf(())])
def test_a_mask_without_the_query_itself_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match=r"itself|nothing"):
        make()  # type: ignore[operator]
