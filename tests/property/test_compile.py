"""The short form of the properties in of_compile: the first rounds of ten examples, in halves of some seconds."""

from __future__ import annotations

import pytest

from .of_compile import PROPERTIES
from .rounds import HALVES, SHORT, Property, hold


@pytest.mark.parametrize("half", HALVES, ids=["first", "second"])
@pytest.mark.parametrize("number", SHORT)
@pytest.mark.parametrize("prop", PROPERTIES, ids=str)
def test_it_holds(prop: Property, number: int, half: slice) -> None:
    hold(prop, number, half)
