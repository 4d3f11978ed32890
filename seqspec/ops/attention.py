"""softmax(q kᵀ · scale) v over the keys that a query may see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import inf
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.masks import EVERYTHING, Band, Mask, normalise
from seqspec.ops.pairs import pairs
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

_ATTEND_VISIBLE = Helper(
    "attend_visible",
    '''
def attend_visible(q, k, v, visible, bias=None, scale=None, dropout=0.0):
    """softmax(q kᵀ · scale + bias) v over the visible keys [B or 1, 1, T, S].

    q[B, H, T, d], k[B, G, S, d], v[B, G, S, e], bias[B or 1, H, T, S] -> [B, H, T, e]
    """
    mask = visible if bias is None else bias.masked_fill(~visible, -torch.inf)
    gqa = q.size(1) != k.size(1)
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale, enable_gqa=gqa)
''',
)

_WEIGHTS = Helper(
    "attention_weights",
    '''
def attention_weights(q, k, visible, bias=None, softcap=None, scale=None):
    """softmax(softcap · tanh(q kᵀ · scale / softcap) + bias) over the visible keys: q[B, H, T, d], k[B, G, S, d].

    The cap comes before the bias, and both before the mask. -> [B, H, T, S]
    """
    scale = q.size(-1) ** -0.5 if scale is None else scale
    scores = (q * scale) @ k.repeat_interleave(q.size(1) // k.size(1), 1).transpose(-1, -2)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(~visible, 0)  # a query that sees no key: zeros, with gradients that are finite
''',
)

_WEIGHTED = Helper(
    "weighted_values",
    '''
def weighted_values(weights, v, dropout=0.0):
    """weights[B, H, T, S], v[B, G, S, e] -> [B, H, T, e]"""
    return F.dropout(weights, dropout) @ v.repeat_interleave(weights.size(1) // v.size(1), 1)
''',
)

_ATTEND_WEIGHED = Helper(
    "attend_weighed",
    '''
def attend_weighed(q, k, v, visible, bias=None, softcap=None, scale=None, dropout=0.0):
    """Attention whose weights are wanted, before dropout: [B, H, T, e], [B, H, T, S]."""
    weights = attention_weights(q, k, visible, bias, softcap, scale)
    return weighted_values(weights, v, dropout), weights
''',
    (_WEIGHTS, _WEIGHTED),
)


@primitive
class Attention(Op):
    """q[B,H,T,d], k[B,G,S,d], v[B,G,S,e], mask?, bias[B,H,T,S]? -> softmax(q kᵀ · scale + bias) v [B,H,T,e].

    Query i sits at key S − T + i (aligned to the end), and query head h reads key head h // (H / G). A query that sees
    no key gives zeros.

    If the attribute `mask` is a band, the input mask [B, S] says which keys are real, and the band which of these a
    query sees. Distances count real tokens, so padding anywhere changes nothing. For any other mask the input is the
    whole mask [B, 1, T, S], made by `Visible`, and the attribute only serves to count FLOPs.

    `scale` None is 1/√d. `softcap` c turns a score into c · tanh(score / c), before bias and mask, as in flash
    attention and ONNX. `dropout` acts on the weights while training. With `weights` they are an output too,
    [B, H, T, S], before dropout.
    """

    by_order = True

    mask: Mask = EVERYTHING
    scale: float | None = None
    dropout: float = 0.0
    softcap: float | None = None
    weights: bool = False

    @property
    def band(self) -> Band | None:
        """The mask if it is a band, which this op applies itself; otherwise None."""
        short = normalise(self.mask)
        return short if isinstance(short, Band) else None

    def infer(self, q: Value, k: Value, v: Value, mask: Value | None, bias: Value | None = None) -> tuple[Type, ...]:
        _check(q, k, v)
        (batch, heads, queries, _), keys = q.shape, k.shape[2]
        _check_mask(mask, (batch, queries, keys), self.band)
        if bias is not None and bias.shape != (batch, heads, queries, keys):
            raise ShapeError(f"the bias of queries {show(q.shape)} is not {show(bias.shape)}")
        output = Type((batch, heads, queries, v.shape[3]), q.dtype)
        return (output, Type((batch, heads, queries, keys), q.dtype)) if self.weights else (output,)

    def flops(self, q: Value, k: Value, v: Value, mask: Value | None, bias: Value | None = None) -> Size:
        return self._product(q, k) * (q.shape[3] + v.shape[3])

    def backward(
        self, takes: Sequence[bool], q: Value, k: Value, v: Value, mask: Value | None, bias: Value | None = None
    ) -> Size:
        of_q, of_k, of_v, _, of_bias = (*takes, False)[:5]
        width, value_width = q.shape[3], v.shape[3]
        sums = value_width * (of_v + (of_q or of_k or of_bias)) + width * (of_q + of_k)
        return self._product(q, k) * sums

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        """q, k, v, y and the logarithm of each row's sum, as flash attention; else the weights, n² of them."""
        (q, k, *_), (y, *weights) = inputs, outputs
        yield from inputs
        if self.weights or self.softcap is not None:
            scores = Value("", (*q.shape[:3], k.shape[2]), q.dtype)
            yield from (*(weights or [scores]), *([scores] if self.softcap is not None else []))
        else:
            yield from (y, Value("", q.shape[:3], "float32"))

    def reference(
        self, np: Any, weights: Weights, q: Array, k: Array, v: Array, mask: Array | None, bias: Array | None = None
    ) -> tuple[Array, ...]:
        shared = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, shared, 1), np.repeat(v, shared, 1)
        scores = q @ k.swapaxes(-1, -2) * (q.shape[3] ** -0.5 if self.scale is None else self.scale)
        if self.softcap is not None:
            scores = self.softcap * np.tanh(scores / self.softcap)
        if bias is not None:
            scores = scores + bias
        visible = mask if self.band is None else self._visible(np, q, k, mask, self.band)
        top = np.where(visible, scores, -np.inf).max(-1, keepdims=True, initial=-np.inf)
        raised = np.where(visible, np.exp(scores - np.where(np.isfinite(top), top, 0)), 0)
        total = raised.sum(-1, keepdims=True)
        found = raised / np.where(total > 0, total, 1)
        return (found @ v, found) if self.weights else (found @ v,)

    def _visible(self, np: Any, q: Array, k: Array, mask: Array | None, band: Band) -> Array:
        """The pairs that a band allows, [B, 1, T, S], one by one."""
        (batch, _, queries, _), keys = q.shape, k.shape[2]
        real = np.ones((batch, keys), bool) if mask is None else mask
        visible = np.zeros((batch, 1, queries, keys), bool)
        for b, i, j in np.ndindex(batch, queries, keys):
            at = keys - queries + i
            # the number of real tokens from the query to the key, negative if the key comes first
            distance = real[b, at + 1 : j + 1].sum() if j > at else -int(real[b, j + 1 : at + 1].sum())
            inside = (band.left is None or distance >= -band.left) and (band.right is None or distance <= band.right)
            visible[b, 0, i, j] = real[b, j] and inside
        return visible

    def torch(self, t: TorchWriter, q: Expr, k: Expr, v: Expr, mask: Expr | None, bias: Expr | None = None) -> Expr:
        dropout = f"{self.dropout!r} if self.training else 0.0" if self.dropout else None
        explicit = self.softcap is not None or self.weights
        if not explicit and bias is None and self.band is not None:
            band, given = self.band, [] if mask is None else [mask]
            helper = _ATTEND if band == EVERYTHING else _ATTEND_BAND
            sides = _named(left=band.left, right=band.right, scale=self.scale, dropout=dropout)
            return Expr(f"{t.use(helper)}({', '.join([q, k, v, *given, *sides])})")
        visible = self._visible_text(t, q, k, mask)
        named = _named(bias=bias, softcap=self.softcap, scale=self.scale)
        if not explicit:
            arguments = [q, k, v, visible, *named, *_named(dropout=dropout)]
            return Expr(f"{t.use(_ATTEND_VISIBLE)}({', '.join(arguments)})")
        if self.weights:
            arguments = [q, k, v, visible, *named, *_named(dropout=dropout)]
            return Expr(f"{t.use(_ATTEND_WEIGHED)}({', '.join(arguments)})")
        weights = f"{t.use(_WEIGHTS)}({', '.join([q, k, visible, *named])})"
        return Expr(f"{t.use(_WEIGHTED)}({', '.join([weights, v, *_named(dropout=dropout)])})")

    def _visible_text(self, t: TorchWriter, q: Expr, k: Expr, mask: Expr | None) -> str:
        if self.band is None:
            return str(mask)
        return f"{t.use(_VISIBLE_KEYS)}({q}, {k}, {mask}, {self.band.left}, {self.band.right})"

    def onnx(self, o: OnnxWriter, q: Any, k: Any, v: Any, mask: Any | None, bias: Any | None = None) -> tuple[Any, ...]:
        visible = mask
        if self.band is not None and not (mask is None and self.band == EVERYTHING):
            visible = _visible_keys(o, q, k, mask, self.band)
        if bias is not None:
            visible = bias if visible is None else o.Where(visible, bias, o.scalar(-inf))
        # absent attributes are the defaults: 1/√d, and no cap
        options: dict[str, Any] = {"scale": self.scale, "softcap": self.softcap}
        options["softmax_precision"] = 1 if o.half else None  # float32
        given = {name: value for name, value in options.items() if value is not None}
        if not self.weights:
            return (o.Attention(q, k, v, visible, **given),)
        # mode 3 makes the fourth output the weights after the softmax
        y, _, _, weights = o.many("Attention", 4, q, k, v, visible, qk_matmul_output_mode=3, **given)
        return y, weights

    def _product(self, q: Value, k: Value) -> Size:
        """FLOPs of a product over one channel, of the pairs that the mask allows."""
        batch, heads, queries, _ = q.shape
        return 2 * batch * heads * pairs(self.mask, _number(queries), _number(k.shape[2]))


def _named(**values: object) -> list[str]:
    """Keyword arguments as text, without those that are None."""
    return [f"{name}={value}" for name, value in values.items() if value is not None]


def _visible_keys(o: OnnxWriter, q: Any, k: Any, mask: Any | None, band: Band) -> Any:
    """The pairs that a band allows, [B, 1, T, S]. onnxruntime's kernel broadcasts only the axis of heads.

    All layers of a stack ask for the same nodes here, so the writer keeps them once.
    """
    queries, keys = o.size(q, 2), o.size(k, 2) if mask is None else o.size(mask, 1)
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
    """The position of each key, [B or 1, S]. A causal mask needs only their order; a window counts real tokens."""
    if mask is None or (band.left is None and band.right == 0):
        row = o.Range(o.scalar(0, "int64"), o.Squeeze(keys), o.scalar(1, "int64"))
        return o.Unsqueeze(row, o.ints(0))
    return count_real(o, mask)


def _check(q: Value, k: Value, v: Value) -> None:
    if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        raise ShapeError(f"attention takes [B, H, T, d], not {show(q.shape)}, {show(k.shape)}, {show(v.shape)}")
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0]:
        raise ShapeError(f"queries {show(q.shape)}, keys {show(k.shape)} and values {show(v.shape)} do not go together")
    if q.shape[3] != k.shape[3]:
        raise ShapeError(f"queries of width {q.shape[3]} meet keys of width {k.shape[3]}")
    heads, groups = _number(q.shape[1]), _number(k.shape[1])
    if groups < 1 or heads % groups:
        raise ShapeError(f"{heads} query heads cannot share {groups} key heads evenly")


def _check_mask(mask: Value | None, pairs: tuple[Size, Size, Size], band: Band | None) -> None:
    batch, queries, keys = pairs
    if band is None:
        if mask is None or mask.shape != (batch, 1, queries, keys):
            shape = (batch, 1, queries, keys)
            raise ShapeError(f"a mask that is no band comes whole, {show(shape)}, not {mask and show(mask.shape)}")
    elif mask is not None and mask.shape != (batch, keys):
        raise ShapeError(f"the mask of keys is {show((batch, keys))}, not {show(mask.shape)}")


def _number(size: Size) -> int:
    if not isinstance(size, int):
        raise ShapeError(f"{size} must be a plain number here")
    return size
