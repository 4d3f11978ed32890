"""The short form of the properties in of_compile: the first rounds of ten examples."""

from __future__ import annotations

import pytest

from .of_compile import PROPERTIES
from .rounds import SHORT, Property, hold


@pytest.mark.parametrize("number", SHORT)
@pytest.mark.parametrize("prop", PROPERTIES, ids=str)
def test_it_holds(prop: Property, number: int) -> None:
    hold(prop, number)
