"""softmax(q kᵀ · scale) v over the keys that a query may see."""

from __future__ import annotations

from functools import reduce
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.masks import EVERYTHING, Band, Mask, normalise
from seqspec.ops.positions import count_real

_ATTEND = Helper(
    "attend",
    '''
def attend(q, k, v, real=None, scale=None, dropout=0.0):
    """softmax(q kᵀ · scale) v over the real keys: q[B, H, T, d], k[B, G, S, d], v[B, G, S, e] -> [B, H, T, e]."""
    visible = None if real is None else real[:, None, None]
    gqa = q.size(1) != k.size(1)
    return F.scaled_dot_product_attention(q, k, v, visible, dropout, scale=scale, enable_gqa=gqa)
''',
)

_VISIBLE_KEYS = Helper(
    "visible_keys",
    '''
def visible_keys(q, k, real, left, right):
    """The keys that each query sees, [B or 1, 1, T, S]: real ones, from `left` before it to `right` after.

    Query i sits at key S - T + i. Distances count real tokens, so that padding anywhere changes nothing.
    """
    queries, keys = q.size(2), k.size(2)
    place = torch.arange(keys, device=q.device)[None] if real is None else real.cumsum(1) - 1
    key, query = place[:, None, :], place[:, keys - queries :, None]
    visible = torch.ones_like(key, dtype=torch.bool) if real is None else real[:, None, :]
    if left is not None:
        visible = visible & (key >= query - left)
    if right is not None:
        visible = visible & (key <= query + right)
    return visible[:, None]
''',
)

_ATTEND_BAND = Helper(
    "attend_band",
    '''
def attend_band(q, k, v, real=None, left=None, right=None, scale=None, dropout=0.0):
    """softmax(q kᵀ · scale) v over the real keys from `left` before a query to `right` after it, None having no bound.

    q[B, H, T, d], k[B, G, S, d], v[B, G, S, e] -> [B, H, T, e]; query i sits at key S - T + i: right=0 is causal.
    """
    queries, keys = q.size(2), k.size(2)
    visible, causal = None, False
    if real is not None or left is not None or right != 0 or queries not in (1, keys):
        visible = visible_keys(q, k, real, left, right)
    elif queries > 1:
        causal = True  # the kernel's own flag, and no mask at all; one query at the end sees every key
    gqa = q.size(1) != k.size(1)
    return F.scaled_dot_product_attention(q, k, v, visible, dropout, causal, scale=scale, enable_gqa=gqa)
''',
    (_VISIBLE_KEYS,),
)

_ATTEND_CAPPED = Helper(
    "attend_capped",
    '''
def attend_capped(q, k, v, softcap, real=None, left=None, right=None, scale=None, dropout=0.0):
    """softmax(softcap · tanh(q kᵀ · scale / softcap)) v over the real keys from `left` before a query to `right` after.

    q[B, H, T, d], k[B, G, S, d], v[B, G, S, e] -> [B, H, T, e]; the cap comes before the mask.
    """
    shared = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    scale = q.size(-1) ** -0.5 if scale is None else scale
    scores = softcap * torch.tanh((q * scale) @ k.transpose(-1, -2) / softcap)
    hidden = ~visible_keys(q, k, real, left, right)
    weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
    weights = weights.masked_fill(hidden, 0)  # a query that sees no key: zeros, with gradients that are finite
    return F.dropout(weights, dropout) @ v
''',
    (_VISIBLE_KEYS,),
)


@primitive
class Attention(Op):
    """q[B, H, T, d], k[B, G, S, d], v[B, G, S, e], mask[B, S]? -> softmax(q kᵀ · scale) v [B, H, T, e].

    Query i sits at key S − T + i (aligned to the end), and sees the keys that the attribute `mask` allows among the
    real ones, where the input mask is True. Distances count real tokens, so that padding anywhere changes nothing. A
    query that sees no key gives zeros. Query head h reads key head h // (H / G). `scale` None is 1/√d. `softcap` c
    makes a score c · tanh(score / c), before the mask. `dropout` acts on the weights while training.
    """

    mask: Mask = EVERYTHING
    scale: float | None = None
    dropout: float = 0.0
    softcap: float | None = None

    def infer(self, q: Value, k: Value, v: Value, mask: Value | None) -> tuple[Type, ...]:
        _check(q, k, v, mask)
        return (Type((*q.shape[:3], v.shape[3]), q.dtype),)

    def flops(self, q: Value, k: Value, v: Value, mask: Value | None) -> Size:
        batch, heads, queries, width = q.shape
        pairs = normalise(self.mask).pairs(_number(queries), _number(k.shape[2]))
        return 2 * batch * heads * pairs * (width + v.shape[3])

    def reference(
        self, np: Any, weights: Weights, q: Array, k: Array, v: Array, mask: Array | None
    ) -> tuple[Array, ...]:
        shared = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, shared, 1), np.repeat(v, shared, 1)
        scores = q @ k.swapaxes(-1, -2) * (q.shape[3] ** -0.5 if self.scale is None else self.scale)
        if self.softcap is not None:
            scores = self.softcap * np.tanh(scores / self.softcap)
        visible = self._visible(np, q, k, mask)
        top = np.where(visible, scores, -np.inf).max(-1, keepdims=True, initial=-np.inf)
        raised = np.where(visible, np.exp(scores - np.where(np.isfinite(top), top, 0)), 0)
        total = raised.sum(-1, keepdims=True)
        return (raised / np.where(total > 0, total, 1) @ v,)

    def _visible(self, np: Any, q: Array, k: Array, mask: Array | None) -> Array:
        """[B, 1, T, S], pair by pair."""
        (batch, _, queries, _), keys, band = q.shape, k.shape[2], normalise(self.mask)
        real = np.ones((batch, keys), bool) if mask is None else mask
        visible = np.zeros((batch, 1, queries, keys), bool)
        for b, i, j in np.ndindex(batch, queries, keys):
            at = keys - queries + i
            # real tokens passed on the way from the query to the key
            distance = real[b, at + 1 : j + 1].sum() if j > at else -int(real[b, j + 1 : at + 1].sum())
            inside = (band.left is None or distance >= -band.left) and (band.right is None or distance <= band.right)
            visible[b, 0, i, j] = real[b, j] and inside
        return visible

    def torch(self, t: TorchWriter, q: Expr, k: Expr, v: Expr, mask: Expr | None) -> Expr:
        band = normalise(self.mask)
        helper = _ATTEND if band == EVERYTHING else _ATTEND_BAND
        arguments = [q, k, v]
        if self.softcap is not None:
            helper = _ATTEND_CAPPED
            arguments.append(Expr(repr(self.softcap)))
        if mask is not None:
            arguments.append(mask)
        named = {"left": band.left, "right": band.right, "scale": self.scale}
        arguments += [Expr(f"{name}={value!r}") for name, value in named.items() if value is not None]
        if self.dropout:
            arguments.append(Expr(f"dropout={self.dropout!r} if self.training else 0.0"))
        return Expr(f"{t.use(helper)}({', '.join(arguments)})")

    def onnx(self, o: OnnxWriter, q: Any, k: Any, v: Any, mask: Any | None) -> tuple[Any, ...]:
        band = normalise(self.mask)
        visible = None if mask is None and band == EVERYTHING else _visible_keys(o, q, k, mask, band)
        # absent attributes are the defaults: 1/√d, and no cap
        given = {"scale": self.scale, "softcap": self.softcap}
        return (o.Attention(q, k, v, visible, **{name: value for name, value in given.items() if value is not None}),)


def _visible_keys(o: OnnxWriter, q: Any, k: Any, mask: Any | None, band: Band) -> Any:
    """[B, 1, T, S]: every axis but the heads' in full, which onnxruntime's kernel asks for.

    All layers of a stack write the same nodes here, so that the writer keeps them once.
    """
    queries, keys = o.size(q, 2), o.size(k, 2)
    shape = o.Concat(o.size(q, 0), o.ints(1), queries, keys, axis=0)
    seen = [] if mask is None else [o.Unsqueeze(mask, o.ints(1, 2))]
    if band != EVERYTHING:
        place = _places(o, keys, mask, band)
        key = o.Unsqueeze(place, o.ints(1, 2))
        query = o.Unsqueeze(o.Slice(place, o.Sub(keys, queries), keys, o.ints(1)), o.ints(1, 3))
        if band.left is not None:
            seen.append(o.GreaterOrEqual(key, o.Sub(query, o.ints(band.left))))
        if band.right is not None:
            seen.append(o.LessOrEqual(key, o.Add(query, o.ints(band.right)) if band.right else query))
    return o.Expand(reduce(o.And, seen), shape)


def _places(o: OnnxWriter, keys: Any, mask: Any | None, band: Band) -> Any:
    """Where each key stands, [B or 1, S]. Order alone decides what is causal; a window counts real tokens."""
    if mask is None or (band.left is None and band.right == 0):
        row = o.Range(o.scalar(0, "int64"), o.Squeeze(keys), o.scalar(1, "int64"))
        return o.Unsqueeze(row, o.ints(0))
    return count_real(o, mask)


def _check(q: Value, k: Value, v: Value, mask: Value | None) -> None:
    if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        raise ShapeError(f"attention takes [B, H, T, d], not {show(q.shape)}, {show(k.shape)}, {show(v.shape)}")
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0]:
        raise ShapeError(f"queries {show(q.shape)}, keys {show(k.shape)} and values {show(v.shape)} do not go together")
    if q.shape[3] != k.shape[3]:
        raise ShapeError(f"queries of width {q.shape[3]} meet keys of width {k.shape[3]}")
    heads, groups = _number(q.shape[1]), _number(k.shape[1])
    if groups < 1 or heads % groups:
        raise ShapeError(f"{heads} query heads cannot share {groups} key heads evenly")
    if mask is not None and mask.shape != (k.shape[0], k.shape[2]):
        raise ShapeError(f"the mask of keys {show(k.shape)} is [B, S], not {show(mask.shape)}")


def _number(size: Size) -> int:
    if not isinstance(size, int):
        raise ShapeError(f"{size} must be a plain number here")
    return size
