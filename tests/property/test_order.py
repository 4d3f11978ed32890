"""The short form of the properties in of_order: the first rounds of ten examples, of several of which they speak."""

from __future__ import annotations

import pytest

from .of_order import PROPERTIES
from .rounds import SHORT, Property, hold


@pytest.mark.parametrize("number", SHORT)
@pytest.mark.parametrize("prop", PROPERTIES, ids=str)
def test_it_holds(prop: Property, number: int) -> None:
    assert hold(prop, number) >= 2
