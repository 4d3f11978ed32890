"""Which keys a query may see, as data: true means allowed. Padding is no part of it: it comes as an input of attention.

Everything counts real tokens. `Band` and `Prefix` count over the whole row; the other atoms go by positions, which
start anew in each document where a mask has `Documents`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from seqspec.ops.base import Data, primitive


@primitive
class Band(Data):
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


@primitive
class Global(Data):
    """A pair with one of these positions in it: such tokens see all and are seen by all."""

    tokens: tuple[int, ...]


@primitive
class Prefix(Data):
    """The keys before `prefix_length`, which is given for each row at run time."""


@primitive
class Documents(Data):
    """The pairs of one document, told by `document_ids`, which are given at run time."""


@primitive
class Given(Data):
    """The pairs that a mask allows which is given at run time under this name."""

    name: str


@primitive
class BlockSparse(Data):
    """Blocks of `block` positions: the neighbours within `reach` blocks, the first `first` blocks, and random ones.

    The first blocks see all and are seen by all. Beyond these, each block draws `random` of the blocks before it, one
    from each of as many equal parts, and the two see each other. What is drawn depends on `seed` and on the block's
    number alone, not on what follows it, so that a text that grows keeps its mask.
    """

    block: int
    reach: int
    first: int
    random: int
    seed: int

    def drawn(self, block: int, draw: int) -> int:
        """The block that `block` draws as its number `draw`, or −1 where that part is empty."""
        from seqspec.ops.draws import scatter

        low, high = self.part(block, draw)
        return low + scatter(self.seed, draw, block) % (high - low) if high > low else -1

    def part(self, block: int, draw: int) -> tuple[int, int]:
        """The blocks among which this draw chooses: a part of those that are neither first nor neighbours."""
        free = max(block - self.reach - self.first, 0)
        return self.first + free * draw // self.random, self.first + free * (draw + 1) // self.random


@primitive
class AllOf(Data):
    """Allowed where every item allows it; without items, everywhere."""

    items: tuple[Mask, ...]


@primitive
class AnyOf(Data):
    """Allowed where some item allows it."""

    items: tuple[Mask, ...]

    def __post_init__(self) -> None:
        if not self.items:
            raise ValueError("a union of no masks allows nothing")


Atom = Band | Global | Prefix | Documents | Given | BlockSparse
Mask = Atom | AllOf | AnyOf

EVERYTHING = Band()
CAUSAL = Band(None, 0)


@lru_cache(maxsize=256)  # asked for again and again of a few masks
def normalise(mask: Mask) -> Mask:
    """The same pairs, said shortly: nested unions and intersections of one sort flattened, the bands in each one band.

    All bands hold 0, so that intersections and unions of bands are bands: a mask made of them alone becomes a `Band`.
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
    """Whether no query sees a later key; `after_prefix`: but for keys of the prefix, which is given and not written."""
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
