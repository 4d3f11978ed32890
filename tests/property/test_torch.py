"""The short form of the properties in of_torch: the first rounds of ten examples."""

from __future__ import annotations

import pytest

from .of_torch import PROPERTIES
from .rounds import SHORT, Property, hold


@pytest.mark.parametrize("number", SHORT)
@pytest.mark.parametrize("prop", PROPERTIES, ids=str)
def test_it_holds(prop: Property, number: int) -> None:
    hold(prop, number)
