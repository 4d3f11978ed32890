"""The PyTorch text of a mask that is more than a band."""

from __future__ import annotations

from seqspec.ops.base import Helper, TorchWriter
from seqspec.ops.draws import PRIME, factors
from seqspec.ops.masks import AllOf, AnyOf, Band, BlockSparse, Documents, Given, Global, Mask, Prefix
from seqspec.ops.told import Told

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

REAL = Helper(
    "visible_pairs",
    '''
def visible_pairs(allowed, real):
    """allowed[B or 1, 1, T, S] without the keys that are padding."""
    return allowed if real is None else allowed & real[:, None, None]
''',
)


def text(t: TorchWriter, mask: Mask, told: Told) -> str:
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
            return f"{t.use(join)}({', '.join(text(t, item, told) for item in items)})"
