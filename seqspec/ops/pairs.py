"""Counts the (query, key) pairs that a mask allows, which determine the cost of attention. All tokens count as real.

Masks that depend on run-time data are counted without it: `Documents` and `Given` allow everything, `Prefix`, as an
empty prefix, nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, reduce

from seqspec.ops.masks import AllOf, AnyOf, Band, BlockSparse, Documents, Given, Global, Mask, Prefix, normalise

Spans = list[tuple[int, int]]  # from, to: sorted, disjoint, none empty


@lru_cache(maxsize=256)
def pairs(mask: Mask, queries: int, keys: int) -> int:
    """The number of allowed pairs, where query i sits at key `keys - queries + i`."""
    short = normalise(mask)
    if isinstance(short, Band):
        return short.pairs(queries, keys)
    return sum(stop - start for i in range(keys - queries, keys) for start, stop in seen(short, i, keys))


def reach(mask: Mask) -> frozenset[str]:
    """The letters that the number of keys seen by a query grows with: n, or a window w, global tokens g, blocks b, a
    prefix p.

    A union grows with the letters of all parts, an intersection with those of its least part.
    """
    match normalise(mask):
        case Band(left, right):
            return frozenset("n" if left is None or right is None else "w")
        case Global():
            return frozenset("g")
        case BlockSparse():
            return frozenset("b")
        case Prefix():
            return frozenset("p")
        case Documents() | Given():
            return frozenset("n")
        case AllOf(items):
            return min(map(reach, items), key=lambda letters: ("n" in letters, len(letters)))
        case AnyOf(items):
            letters = frozenset().union(*map(reach, items))
            return frozenset("n") if "n" in letters else letters


def seen(mask: Mask, query: int, keys: int) -> Spans:
    """The keys that the query at position `query` sees."""
    match mask:
        case Band(left, right):
            start = 0 if left is None else max(query - left, 0)
            return _span(start, keys if right is None else min(query + right + 1, keys))
        case Global(tokens):
            return [(0, keys)] if query in tokens else _union(_span(t, min(t + 1, keys)) for t in tokens)
        case BlockSparse():
            return _blocks(mask, query // mask.block, keys)
        case Prefix():
            return []
        case Documents() | Given():
            return _span(0, keys)
        case AllOf(items):
            return reduce(_intersection, (seen(item, query, keys) for item in items), _span(0, keys))
        case AnyOf(items):
            return _union(seen(item, query, keys) for item in items)


def _blocks(mask: BlockSparse, block: int, keys: int) -> Spans:
    size, count = mask.block, -(-keys // mask.block)
    if block < mask.first:
        return _span(0, keys)
    near = (max(block - mask.reach, 0), min(block + mask.reach + 1, count))
    wanted = [(0, min(mask.first, count)), near, *((b, b + 1) for b in _drawn_with(mask, count)[block])]
    return _union(_span(start * size, min(stop * size, keys)) for start, stop in wanted)


@lru_cache(maxsize=16)
def _drawn_with(mask: BlockSparse, count: int) -> tuple[tuple[int, ...], ...]:
    """For each block, the blocks that it draws and those that draw it."""
    found: list[list[int]] = [[] for _ in range(count)]
    for block in range(count):
        for draw in range(mask.random):
            other = mask.drawn(block, draw)
            if other >= 0:
                found[block].append(other)
                found[other].append(block)
    return tuple(map(tuple, found))


def _span(start: int, stop: int) -> Spans:
    return [(start, stop)] if start < stop else []


def _union(parts: Iterable[Spans]) -> Spans:
    joined: Spans = []
    for start, stop in sorted(span for part in parts for span in part):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined


def _intersection(a: Spans, b: Spans) -> Spans:
    return [s for x, y in a for u, v in b for s in _span(max(x, u), min(y, v))]
