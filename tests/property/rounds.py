"""Examples in rounds of ten, the same for every property, so that each case is computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from .case import Case, cases

# hypothesis also draws numbers that it finds in the modules imported so far: a round would not be the same twice
providers._get_local_constants = lambda: providers._local_constants

ROUND = 10  # beyond ten valid examples hypothesis changes old ones instead of drawing new ones
SHORT = range(3)  # the rounds that CI runs
ALL = slice(None)
HALVES = slice(ROUND // 2), slice(ROUND // 2, None)
T = TypeVar("T")
Check = Callable[[Case], float | None]


@dataclass(frozen=True)
class Property:
    """`check` returns the worst error of a case, or None if the property does not apply, or raises AssertionError."""

    name: str
    check: Check

    def __str__(self) -> str:
        return self.name


@lru_cache(maxsize=4)
def examples(number: int) -> tuple[Case, ...]:
    """The cases of one round."""
    found: list[Case] = []
    _run(number, found.append, cases(), Phase.generate)
    return tuple(found)


def values(strategy: st.SearchStrategy[T], rounds: int) -> Iterator[T]:
    """The examples that a strategy draws in so many rounds, each drawn on demand."""
    for number in range(rounds):
        found: list[T] = []
        _run(number, found.append, strategy, Phase.generate)
        yield from found


def hold(prop: Property, number: int, part: slice = ALL) -> int:
    """The number of cases in the round, or a part of it, that the property applies to.

    Raises for the smallest case for which it does not hold, if there is one.
    """
    count = 0
    for case in examples(number)[part]:
        try:
            count += prop.check(case) is not None
        except Exception as error:
            error.add_note(f"{case.spec.text}\n{case.batch}")  # as drawn, before it is shrunk
            shrink(prop, number)
            raise
    return count


def shrink(prop: Property, number: int) -> None:
    """Draws the round again, shrinks the first case that fails, and raises with it as YAML."""

    def check(case: Case) -> None:
        prop.check(case)

    _run(number, check, cases(), Phase.generate, Phase.shrink)


def _run(number: int, check: Callable[[T], None], strategy: st.SearchStrategy[T], *phases: Phase) -> None:
    @seed(number)
    @settings(
        max_examples=ROUND,
        phases=phases,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(strategy)
    def run(case: T) -> None:
        check(case)

    run()
