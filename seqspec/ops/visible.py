"""A mask that is more than a band, as a tensor of pairs: made once, read by every attention that has this mask."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.draws import PRIME, factors
from seqspec.ops.masks import (
    AllOf,
    AnyOf,
    Band,
    BlockSparse,
    Documents,
    Given,
    Global,
    Mask,
    Prefix,
    atoms,
    normalise,
)

_BAND = Helper(
    "within_band",
    '''
def within_band(query, key, left, right):
    """From `left` before the query to `right` after it, None having no bound."""
    inside = torch.ones_like(key, dtype=torch.bool)
    if left is not None:
        inside = inside & (key >= query - left)
    if right is not None:
        inside = inside & (key <= query + right)
    return inside
''',
)

_GLOBAL = Helper(
    "with_token",
    '''
def with_token(query, key, tokens):
    """The pairs with one of these positions in it."""
    found = torch.zeros_like(key, dtype=torch.bool)
    for token in tokens:
        found = found | (query == token) | (key == token)
    return found
''',
)

_DRAWN = Helper(
    "drawn_block",
    f'''
def drawn_block(number, near, first, part, parts, factors):
    """The block that each draws among those before it, first and near ones left out: one of a part of them, or -1."""
    a, b, c = factors
    free = (number - near - first).clamp(min=0)
    low, high = first + free * part // parts, first + free * (part + 1) // parts
    hashed = (((a * number + b) % {PRIME}) ** 2 + c) % {PRIME}
    return torch.where(high > low, low + hashed**2 % {PRIME} % (high - low).clamp(min=1), -1)
''',
)

_BLOCKS = Helper(
    "block_sparse",
    '''
def block_sparse(query, key, size, near, first, draws):
    """Blocks up to `near` apart, the `first` ones with all, and each with one of those before it in every draw."""
    query, key = query.clamp(min=0) // size, key.clamp(min=0) // size
    seen = ((query - key).abs() <= near) | (query < first) | (key < first)
    for part, factors in enumerate(draws):
        seen = seen | (drawn_block(query, near, first, part, len(draws), factors) == key)
        seen = seen | (drawn_block(key, near, first, part, len(draws), factors) == query)
    return seen
''',
    (_DRAWN,),
)

_DOCUMENT = Helper(
    "same_document",
    '''
def same_document(documents, query):
    """The pairs of one document: documents[B, S], of which the queries are the last."""
    return documents[:, None, documents.size(1) - query.size(2) :, None] == documents[:, None, None]
''',
)

_PREFIX = Helper(
    "in_prefix",
    '''
def in_prefix(query, key, prefix):
    """The pairs whose key is before prefix[B], for every query."""
    return (key < prefix[:, None, None, None]).expand(-1, -1, query.size(2), -1)
''',
)

_EVERY = Helper(
    "every",
    '''
def every(allowed, *more):
    """The pairs that all masks allow."""
    for other in more:
        allowed = allowed & other
    return allowed
''',
)

_SOME = Helper(
    "some",
    '''
def some(allowed, *more):
    """The pairs that some mask allows."""
    for other in more:
        allowed = allowed | other
    return allowed
''',
)

_REAL = Helper(
    "visible_pairs",
    '''
def visible_pairs(allowed, real):
    """allowed[B or 1, 1, T, S] without the keys that are padding."""
    return allowed if real is None else allowed & real[:, None, None]
''',
)


class Told(NamedTuple):
    """What a mask is told about the pairs: places on the row and in documents, and what was given."""

    query: Any
    key: Any
    own_query: Any
    own_key: Any
    documents: Any
    prefix: Any
    given: dict[str, Any]


@primitive
class Visible(Op):
    """Which keys each query sees, [B, 1, T, S]: what `mask` allows, without padding.

    Inputs are query [B, 1, T, 1] and key [B, 1, 1, S], places on the row; real[B, S]?; then as the mask needs them
    documents[B, S] and places in documents as another two, prefix[B], and a bool[B, T, S] for each name in `given`. In
    PyTorch the first axis may be 1, for all rows.
    """

    mask: Mask

    @property
    def given(self) -> tuple[str, ...]:
        """Names of masks given at run time, in the order of their inputs."""
        return tuple(dict.fromkeys(atom.name for atom in atoms(self.mask) if isinstance(atom, Given)))

    @property
    def has_documents(self) -> bool:
        return any(isinstance(atom, Documents) for atom in atoms(self.mask))

    @property
    def has_prefix(self) -> bool:
        return any(isinstance(atom, Prefix) for atom in atoms(self.mask))

    def _told(self, query: Any, key: Any, data: tuple[Any, ...]) -> Told:
        left = iter(data)
        documents, own_query, own_key = (next(left) for _ in range(3)) if self.has_documents else (None, query, key)
        prefix = next(left) if self.has_prefix else None
        return Told(query, key, own_query, own_key, documents, prefix, dict(zip(self.given, left, strict=True)))

    def infer(self, query: Value, key: Value, real: Value | None, *data: Value) -> tuple[Type, ...]:
        told = self._told(query, key, data)
        batch, _, time, _ = query.shape
        total = key.shape[3]
        for name, value in told.given.items():
            if value.shape != (batch, time, total):
                raise ShapeError(f"the mask `{name}` is {show((batch, time, total))}, not {show(value.shape)}")
        return (Type((batch, 1, time, total), "bool"),)

    def flops(self, query: Value, key: Value, real: Value | None, *data: Value) -> Size:
        return 0

    # NumPy: pair by pair

    def reference(
        self, np: Any, weights: Weights, query: Array, key: Array, real: Array | None, *data: Array
    ) -> tuple[Array, ...]:
        told = self._told(query, key, data)
        batch, _, time, total = np.broadcast_shapes(query.shape, key.shape)
        visible = np.zeros((batch, 1, time, total), bool)
        for b, i, j in np.ndindex(batch, time, total):
            if real is None or real[b, j]:
                visible[b, 0, i, j] = _allows(self.mask, told, b, i, j)
        return (visible,)

    # PyTorch

    def torch(self, t: TorchWriter, query: Expr, key: Expr, real: Expr | None, *data: Expr) -> Expr:
        return Expr(f"{t.use(_REAL)}({_text(t, normalise(self.mask), self._told(query, key, data))}, {real})")

    # ONNX

    def onnx(self, o: OnnxWriter, query: Any, key: Any, real: Any | None, *data: Any) -> tuple[Any, ...]:
        allowed = _nodes(o, normalise(self.mask), self._told(query, key, data))
        if real is not None:
            allowed = o.And(allowed, o.Unsqueeze(real, o.ints(1, 2)))
        shape = o.Concat(o.size(query, 0), o.ints(1), o.size(query, 2), o.size(key, 3), axis=0)
        return (o.Expand(allowed, shape),)  # onnxruntime's kernel asks for every axis but the heads' in full


def _allows(mask: Mask, told: Told, b: int, i: int, j: int) -> bool:
    """Whether query i of row b may see key j."""
    q, k = told.own_query[b, 0, i, 0], told.own_key[b, 0, 0, j]
    match mask:
        case Band(left, right):
            way = told.key[b, 0, 0, j] - told.query[b, 0, i, 0]
            return bool((left is None or way >= -left) and (right is None or way <= right))
        case Global(tokens):
            return q in tokens or k in tokens
        case Prefix():
            return bool(told.key[b, 0, 0, j] < told.prefix[b])
        case Documents():
            return bool(told.documents[b, -told.query.shape[2] :][i] == told.documents[b, j])
        case Given(name):
            return bool(told.given[name][b, i, j])
        case BlockSparse():
            return _blocks_meet(mask, max(int(q), 0) // mask.block, max(int(k), 0) // mask.block)
        case AllOf(items):
            return all(_allows(item, told, b, i, j) for item in items)
        case AnyOf(items):
            return any(_allows(item, told, b, i, j) for item in items)


def _blocks_meet(mask: BlockSparse, query: int, key: int) -> bool:
    early, late = sorted((query, key))
    if early < mask.first or late - early <= mask.reach:
        return True
    return any(mask.drawn(late, draw) == early for draw in range(mask.random))


def _text(t: TorchWriter, mask: Mask, told: Told) -> str:
    """The mask as an expression of [B or 1, 1, T, S]."""
    pair, own = f"{told.query}, {told.key}", f"{told.own_query}, {told.own_key}"
    match mask:
        case Band(left, right):
            return f"{t.use(_BAND)}({pair}, {left}, {right})"
        case Global(tokens):
            return f"{t.use(_GLOBAL)}({own}, {list(tokens)})"
        case Prefix():
            return f"{t.use(_PREFIX)}({pair}, {told.prefix})"
        case Documents():
            return f"{t.use(_DOCUMENT)}({told.documents}, {told.query})"
        case Given(name):
            return f"{told.given[name]}[:, None]"
        case BlockSparse(block, reach, first, random, seed):
            draws = [factors(seed, draw) for draw in range(random)]
            return f"{t.use(_BLOCKS)}({own}, {block}, {reach}, {first}, {draws})"
        case AllOf(items) | AnyOf(items):
            join = _EVERY if isinstance(mask, AllOf) else _SOME
            return f"{t.use(join)}({', '.join(_text(t, item, told) for item in items)})"


def _nodes(o: OnnxWriter, mask: Mask, told: Told) -> Any:
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
            return reduce(join, (_nodes(o, item, told) for item in items))


def _block_nodes(o: OnnxWriter, mask: BlockSparse, query: Any, key: Any) -> Any:
    near = o.LessOrEqual(o.Abs(o.Sub(query, key)), o.ints(mask.reach))
    seen = [near, *((o.Less(side, o.ints(mask.first)) for side in (query, key)) if mask.first else ())]
    for draw, (one, other) in ((n, pair) for n in range(mask.random) for pair in ((query, key), (key, query))):
        seen.append(o.Equal(_drawn_node(o, mask, draw, one), other))
    return reduce(o.Or, seen)


def _drawn_node(o: OnnxWriter, mask: BlockSparse, draw: int, number: Any) -> Any:
    """`BlockSparse.drawn` of every block number."""
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
