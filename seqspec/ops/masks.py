"""Which keys a query may see, as data: true means allowed. Padding is no part of it: it comes as an input of attention.

Distances are j − i, of key j from query i, both counted in real tokens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Band:
    """−left <= j − i <= right; None is unbounded. Neither is negative: a query is always in its own band.

    Causal is `Band(None, 0)`. A window of size w counts the query itself, |j − i| < w: `Band(w − 1, w − 1)`.
    """

    left: int | None = None
    right: int | None = None

    def __post_init__(self) -> None:
        if (self.left is not None and self.left < 0) or (self.right is not None and self.right < 0):
            raise ValueError(f"a band from −{self.left} to {self.right} leaves out the query itself")

    def pairs(self, queries: int, keys: int) -> int:
        """How many (query, key) pairs are allowed when query i sits at key `keys - queries + i`."""
        beyond_right = 0 if self.right is None else _triangle(queries - 1 - self.right)
        past = keys - queries
        beyond_left = 0 if self.left is None else _triangle(keys - 1 - self.left) - _triangle(past - 1 - self.left)
        return queries * keys - beyond_right - beyond_left


@dataclass(frozen=True)
class AllOf:
    """Allowed where every item allows it; without items, everywhere."""

    items: tuple[Mask, ...]


@dataclass(frozen=True)
class AnyOf:
    """Allowed where some item allows it."""

    items: tuple[Mask, ...]

    def __post_init__(self) -> None:
        if not self.items:
            raise ValueError("a union of no masks allows nothing")


Mask = Band | AllOf | AnyOf

EVERYTHING = Band()
CAUSAL = Band(None, 0)


def normalise(mask: Mask) -> Band:
    """The one band that allows the same pairs: since all bands hold 0, intersections and unions of bands are bands."""
    match mask:
        case Band():
            return mask
        case AllOf(items):
            bands = [normalise(item) for item in items]
            return Band(_narrower([b.left for b in bands]), _narrower([b.right for b in bands]))
        case AnyOf(items):
            bands = [normalise(item) for item in items]
            return Band(_wider([b.left for b in bands]), _wider([b.right for b in bands]))


def implies_causal(mask: Mask) -> bool:
    """Whether no query sees a later key."""
    return normalise(mask).right == 0


def _narrower(bounds: list[int | None]) -> int | None:
    return min((b for b in bounds if b is not None), default=None)


def _wider(bounds: list[int | None]) -> int | None:
    known = [b for b in bounds if b is not None]
    return max(known) if len(known) == len(bounds) else None


def _triangle(n: int) -> int:
    return n * (n + 1) // 2 if n > 0 else 0
