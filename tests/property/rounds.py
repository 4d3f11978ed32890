"""Examples in rounds of ten, the same ones for every property, so that what a case costs is paid once."""

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
    """`check` gives the worst error of a case, None where the property says nothing of it, or raises AssertionError."""

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
    """What a strategy draws in so many rounds, each drawn when it is asked for."""
    for number in range(rounds):
        found: list[T] = []
        _run(number, found.append, strategy, Phase.generate)
        yield from found


def hold(prop: Property, number: int, part: slice = ALL) -> int:
    """Of how many cases of the round, or of a part, it speaks.

    Raises for the smallest that it does not hold for, if there is one.
    """
    count = 0
    for case in examples(number)[part]:
        try:
            count += prop.check(case) is not None
        except Exception as error:
            error.add_note(f"{case.spec.text}\n{case.batch}")  # as it came, before it is made smaller
            shrink(prop, number)
            raise
    return count


def shrink(prop: Property, number: int) -> None:
    """Draws the round again, makes the first case that fails smaller, and raises with it as YAML."""

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
