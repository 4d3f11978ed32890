"""The ONNX nodes of a mask that is more than a band."""

from __future__ import annotations

from functools import reduce
from typing import Any

from seqspec.ops.base import OnnxWriter
from seqspec.ops.draws import PRIME, factors
from seqspec.ops.masks import AllOf, AnyOf, Band, BlockSparse, Documents, Given, Global, Mask, Prefix
from seqspec.ops.told import Told


def nodes(o: OnnxWriter, mask: Mask, told: Told) -> Any:
    """The mask as nodes that give [B or 1, 1, T or 1, S]."""
    query, key = told.own_query, told.own_key
    match mask:
        case Band(left, right):
            sides = [] if left is None else [o.GreaterOrEqual(told.key, o.Sub(told.query, o.ints(left)))]
            if right is not None:
                sides.append(o.LessOrEqual(told.key, o.Add(told.query, o.ints(right)) if right else told.query))
            return reduce(o.And, sides)
        case Global(tokens):
            return reduce(o.Or, (o.Equal(side, o.ints(token)) for token in tokens for side in (query, key)))
        case Prefix():
            return o.Less(told.key, o.Unsqueeze(told.prefix, o.ints(1, 2, 3)))
        case Documents():
            total = o.size(told.documents, 1)
            late = o.Slice(told.documents, o.Sub(total, o.size(told.query, 2)), total, o.ints(1))
            return o.Equal(o.Unsqueeze(late, o.ints(1, 3)), o.Unsqueeze(told.documents, o.ints(1, 2)))
        case Given(name):
            return o.Unsqueeze(told.given[name], o.ints(1))
        case BlockSparse():
            blocks = [o.Div(o.Max(side, o.ints(0)), o.ints(mask.block)) for side in (query, key)]
            return _block_nodes(o, mask, *blocks)
        case AllOf(items) | AnyOf(items):
            join = o.And if isinstance(mask, AllOf) else o.Or
            return reduce(join, (nodes(o, item, told) for item in items))


def _block_nodes(o: OnnxWriter, mask: BlockSparse, query: Any, key: Any) -> Any:
    near = o.LessOrEqual(o.Abs(o.Sub(query, key)), o.ints(mask.reach))
    seen = [near, *((o.Less(side, o.ints(mask.first)) for side in (query, key)) if mask.first else ())]
    for draw, (one, other) in ((n, pair) for n in range(mask.random) for pair in ((query, key), (key, query))):
        seen.append(o.Equal(_drawn_node(o, mask, draw, one), other))
    return reduce(o.Or, seen)


def _drawn_node(o: OnnxWriter, mask: BlockSparse, draw: int, number: Any) -> Any:
    """`BlockSparse.drawn` for every block number."""
    a, b, c = factors(mask.seed, draw)
    prime = o.ints(PRIME)
    free = o.Max(o.Sub(number, o.ints(mask.reach + mask.first)), o.ints(0))
    low, high = (
        o.Add(o.Div(o.Mul(free, o.ints(n)), o.ints(mask.random)), o.ints(mask.first)) for n in (draw, draw + 1)
    )
    once = o.Mod(o.Add(o.Mul(number, o.ints(a)), o.ints(b)), prime)
    twice = o.Mod(o.Add(o.Mul(once, once), o.ints(c)), prime)
    size = o.Sub(high, low)
    picked = o.Add(low, o.Mod(o.Mod(o.Mul(twice, twice), prime), o.Max(size, o.ints(1))))
    return o.Where(o.Greater(size, o.ints(0)), picked, o.ints(-1))
