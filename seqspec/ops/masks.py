"""Masks as data: which keys a query may see. Padding is not part of a mask; it is an input of attention.

All distances and positions count real tokens. `Band` and `Prefix` count over the whole row; the other atoms use
positions, which restart in each document if the mask has `Documents`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from seqspec.ops.base import Data, primitive


@primitive
class Band(Data):
    """Query i sees key j if −left <= j − i <= right. None is unbounded; a negative bound is a ValueError.

    Causal is `Band(None, 0)`. A window of size w counts the query itself, |j − i| < w: `Band(w − 1, w − 1)`.
    """

    left: int | None = None
    right: int | None = None

    def __post_init__(self) -> None:
        if (self.left is not None and self.left < 0) or (self.right is not None and self.right < 0):
            raise ValueError(f"a band from −{self.left} to {self.right} leaves out the query itself")

    def pairs(self, queries: int, keys: int) -> int:
        """The number of allowed (query, key) pairs, where query i sits at key `keys - queries + i`."""
        beyond_right = 0 if self.right is None else _triangle(queries - 1 - self.right)
        past = keys - queries
        beyond_left = 0 if self.left is None else _triangle(keys - 1 - self.left) - _triangle(past - 1 - self.left)
        return queries * keys - beyond_right - beyond_left


@primitive
class Global(Data):
    """Pairs in which either position is one of `tokens`: these see everything and are seen by everything."""

    tokens: tuple[int, ...]


@primitive
class Prefix(Data):
    """Keys before `prefix_length`, which is given for each row at run time."""


@primitive
class Documents(Data):
    """Pairs within one document, by the `document_ids` given at run time."""


@primitive
class Given(Data):
    """Pairs that a mask allows which is given at run time as the input `name`."""

    name: str


@primitive
class BlockSparse(Data):
    """Blocks of `block` positions: the neighbours within `reach` blocks, the first `first` blocks, and random ones.

    The first blocks see everything and are seen by everything. In addition, each block draws `random` of the blocks
    before it, one from each of as many equal parts, and the two see each other. A draw depends only on `seed` and the
    block's number, so that the mask of a growing text never changes.
    """

    block: int
    reach: int
    first: int
    random: int
    seed: int

    def drawn(self, block: int, draw: int) -> int:
        """The block that `block` draws as its number `draw`, or −1 if that part is empty."""
        from seqspec.ops.draws import scatter

        low, high = self.part(block, draw)
        return low + scatter(self.seed, draw, block) % (high - low) if high > low else -1

    def part(self, block: int, draw: int) -> tuple[int, int]:
        """The range [low, high) of blocks that this draw chooses from: part of those neither first nor neighbours."""
        free = max(block - self.reach - self.first, 0)
        return self.first + free * draw // self.random, self.first + free * (draw + 1) // self.random


@primitive
class AllOf(Data):
    """Pairs that every item allows; without items, all pairs."""

    items: tuple[Mask, ...]


@primitive
class AnyOf(Data):
    """Pairs that at least one item allows."""

    items: tuple[Mask, ...]

    def __post_init__(self) -> None:
        if not self.items:
            raise ValueError("a union of no masks allows nothing")


Atom = Band | Global | Prefix | Documents | Given | BlockSparse
Mask = Atom | AllOf | AnyOf

EVERYTHING = Band()
CAUSAL = Band(None, 0)


@lru_cache(maxsize=256)  # called very often, on few masks
def normalise(mask: Mask) -> Mask:
    """The same pairs in a normal form: nested unions and intersections flattened, the bands in each joined into one.

    All bands contain 0, so intersections and unions of bands are bands: a mask made of bands alone becomes a `Band`.
    """
    if not isinstance(mask, AllOf | AnyOf):
        return mask
    sort, narrow = type(mask), isinstance(mask, AllOf)
    items: list[Mask] = []
    for item in mask.items:
        short = normalise(item)
        items += short.items if isinstance(short, AllOf | AnyOf) and isinstance(short, sort) else [short]
    bands = [item for item in items if isinstance(item, Band)]
    rest = list(dict.fromkeys(item for item in items if not isinstance(item, Band)))
    if not rest:
        return _joined(bands, narrow)
    band = _joined(bands, narrow) if bands else None
    if band == EVERYTHING:
        if not narrow:
            return EVERYTHING
        band = None
    kept: list[Mask] = ([band] if band else []) + rest
    return kept[0] if len(kept) == 1 else sort(tuple(kept))


def implies_causal(mask: Mask, *, after_prefix: bool = False) -> bool:
    """Whether no query sees a later key. `after_prefix` excepts keys of the prefix, which is given, not generated."""
    match normalise(mask):
        case Band(_, right):
            return right == 0
        case AllOf(items):
            return any(implies_causal(item, after_prefix=after_prefix) for item in items)
        case AnyOf(items):
            return all(implies_causal(item, after_prefix=after_prefix) for item in items)
        case Prefix():
            return after_prefix
        case _:
            return False


def looks_back(mask: Mask) -> int | None:
    """How many real tokens before itself, over the whole row, a query can see at most; None if that has no bound."""
    match normalise(mask):
        case Band(left, _):
            return left
        case AllOf(items):
            return _narrower([looks_back(item) for item in items])
        case AnyOf(items):
            return _wider([looks_back(item) for item in items])
        case _:
            return None


def atoms(mask: Mask) -> Iterator[Atom]:
    """Every atom of a mask, in order."""
    if isinstance(mask, AllOf | AnyOf):
        for item in mask.items:
            yield from atoms(item)
    else:
        yield mask


def _joined(bands: list[Band], narrow: bool) -> Band:
    bound = _narrower if narrow else _wider
    return Band(bound([b.left for b in bands]), bound([b.right for b in bands]))


def _narrower(bounds: list[int | None]) -> int | None:
    return min((b for b in bounds if b is not None), default=None)


def _wider(bounds: list[int | None]) -> int | None:
    known = [b for b in bounds if b is not None]
    return max(known) if len(known) == len(bounds) else None


def _triangle(n: int) -> int:
    return n * (n + 1) // 2 if n > 0 else 0
