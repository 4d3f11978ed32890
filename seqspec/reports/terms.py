"""Terms, which are products of powers of sizes: which of them dominate, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

_ORDER = "nmswgbpkdVh"
_WITHIN_N = "wgbpk"  # parts of a sequence, so at most n
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Term(NamedTuple):
    """(letter, power) for every power that is not 0, in the order in which they are written."""

    powers: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, powers: Mapping[str, int]) -> Term:
        return cls(tuple((letter, powers[letter]) for letter in _ORDER if powers.get(letter)))

    def below(self, other: Term) -> bool:
        """Whether it is of a lower order, since w, g, b, p, k ≤ n and h ≤ d."""
        more = dict.fromkeys(_ORDER, 0) | dict(other.powers)
        for letter, power in self.powers:
            more[letter] -= power
        n = more["n"] + sum(min(more[letter], 0) for letter in _WITHIN_N)
        d = more["d"] + min(more["h"], 0)
        return self != other and min(n, d, *(more[letter] for letter in "msV")) >= 0

    def without(self, letter: str) -> Term:
        """The same term without a letter."""
        return Term(tuple(power for power in self.powers if power[0] != letter))

    def __str__(self) -> str:
        over = [(letter, -power) for letter, power in self.powers if power < 0]
        up = " ".join(_power(letter, power) for letter, power in self.powers if power > 0) or "1"
        return up + "".join(f"/{_power(letter, power)}" for letter, power in over)


def shown(terms: Iterable[Term], *, heads: bool = False) -> str:
    """The dominating terms: `n² d + n d²`, or `n (w + g) d` if they differ only in a letter of a mask; `0` if none.

    With `heads`, a term stays that differs from a larger one only in its power of h: `n d² + n d²/h`.
    """
    found = set(terms)
    largest = [term for term in found if not any(_hides(other, term, heads) for other in found)]
    sums: dict[str, list[str]] = {}
    for term in sorted(largest, key=_rank):
        first = [letter for letter, power in term.powers if letter in _WITHIN_N and power == 1]
        letter = first[0] if first else ""
        rest = Term(tuple((x if x != letter else "*", power) for x, power in term.powers))
        sums.setdefault(str(rest), []).append(letter)
    return " + ".join(rest.replace("*", _sum(seen)) for rest, seen in sums.items()) or "0"


def _hides(other: Term, term: Term, heads: bool) -> bool:
    return term.below(other) and not (heads and term.without("h") == other.without("h"))


def _sum(seen: list[str]) -> str:
    return seen[0] if len(seen) == 1 else f"({' + '.join(seen)})"


def _power(letter: str, power: int) -> str:
    return letter if power == 1 else letter + str(power).translate(_RAISED)


def _rank(term: Term) -> tuple[int, ...]:
    """Higher powers first, letter by letter."""
    powers = dict(term.powers)
    return tuple(-powers.get(letter, 0) for letter in _ORDER)
