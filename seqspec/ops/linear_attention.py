"""Linear attention: φ(q)·φ(k) in place of exp(q·k), so that cost grows with n, not n²."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from seqspec.graph.dims import Size, ceil_div, show
from seqspec.graph.ir import State, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive

_FEATURES = Helper(
    "linear_features",
    '''
def linear_features(q, k, v, real):
    """elu + 1 of q [B, G, H/G, T, d] and k [B, G, T, d], 0 at padding; v with a column of ones to count with."""
    q, k = F.elu(q.unflatten(1, (k.size(1), -1))) + 1, F.elu(k) + 1
    if real is not None:
        k = k.masked_fill(~real[:, None, real.size(1) - k.size(2) :, None], 0)
    return q, k, F.pad(v, (0, 1), value=1.0)
''',
)

_QUOTIENT = Helper(
    "counted_mean",
    '''
def counted_mean(sums):
    """sums[B, G, H/G, T, e + 1] -> [B, H, T, e]: divided by the last column, zeros where that is 0."""
    y, total = sums[..., :-1], sums[..., -1:]
    return (y / total.masked_fill(total == 0, 1)).flatten(1, 2)
''',
)

_LINEAR = Helper(
    "linear_attention",
    '''
def linear_attention(q, k, v, real=None):
    """y_i = φ(q_i) Σ φ(k_j) v_jᵀ / φ(q_i)·Σ φ(k_j) over all real j, φ = elu + 1.

    q[B, H, T, d], k[B, G, T, d], v[B, G, T, e] -> [B, H, T, e]
    """
    q, k, v = linear_features(q, k, v, real)
    return counted_mean(q @ (k.transpose(-1, -2) @ v)[:, :, None])
''',
    (_FEATURES, _QUOTIENT),
)

_CAUSAL = Helper(
    "causal_linear_attention",
    '''
def causal_linear_attention(q, k, v, real=None, kv_sum=None, key_sum=None, chunk=64):
    """The same over the real j up to i: pairs inside a chunk, sums of φ(k) vᵀ over the chunks before it.

    -> y [B, H, T, e], and the sums Σ φ(k) vᵀ [B, G, d, e], Σ φ(k) [B, G, d] to go on from.
    """
    q, k, v = linear_features(q, k, v, real)
    length = k.size(2)
    chunk = 1 if length == 1 else chunk
    count = -(-length // chunk)
    q, k, v = (F.pad(x, (0, 0, 0, count * chunk - length)).unflatten(-2, (count, chunk)) for x in (q, k, v))
    sums = k.transpose(-1, -2) @ v
    start = torch.zeros_like(sums.sum(2)) if kv_sum is None else torch.cat([kv_sum, key_sum[..., None]], -1)
    sums = torch.cat([start[:, :, None], sums], 2).cumsum(2)
    k, v, before, last = k[:, :, None], v[:, :, None], sums[:, :, None, :-1], sums[:, :, -1]
    y = q @ before + (q @ k.transpose(-1, -2)).tril() @ v
    return counted_mean(y.flatten(-3, -2)[..., :length, :]), last[..., :-1], last[..., -1]
''',
    (_FEATURES, _QUOTIENT),
)

CHUNK = 64
"""Tokens per chunk, within which pairs are computed one by one. The results do not depend on it."""


@primitive
class LinearAttention(Op):
    """q[B,H,T,d], k[B,G,T,d], v[B,G,T,e], mask[B,S]? -> y_i = φ(q_i) Σ_j φ(k_j) v_jᵀ / φ(q_i)·Σ_j φ(k_j) [B,H,T,e].

    φ(x) = elu(x) + 1 (Katharopoulos et al. 2020). j runs over the real tokens, up to i if `causal`; without any, y is
    zero. Nothing is added to the denominator. With `looks_back` it carries Σ φ(k) vᵀ [B,G,d,e] and Σ φ(k) [B,G,d].
    """

    causal: bool
    looks_back: bool = False

    def infer(self, q: Value, k: Value, v: Value, mask: Value | None) -> tuple[Type, ...]:
        if self.looks_back and not self.causal:
            raise ShapeError("linear attention over all tokens cannot go on from a past")
        if q.shape[2:] != k.shape[2:] or k.shape[:3] != v.shape[:3]:
            shapes = ", ".join(show(x.shape) for x in (q, k, v))
            raise ShapeError(f"linear attention takes [B, H, T, d], [B, G, T, d] and [B, G, T, e], not {shapes}")
        heads, groups = int(str(q.shape[1])), int(str(k.shape[1]))
        if heads % groups:
            raise ShapeError(f"{heads} query heads cannot share {groups} key heads evenly")
        y = Type((*q.shape[:3], v.shape[3]), q.dtype)
        return (y, *(Type(s.shape, s.dtype) for s in self.states(q, k, v, mask)))

    def states(self, q: Value, k: Value, v: Value, mask: Value | None) -> tuple[State, ...]:
        batch, groups, _, width = k.shape
        sums = State("kv_sum", (batch, groups, width, v.shape[3]), 1), State("key_sum", (batch, groups, width), 2)
        return sums if self.looks_back else ()

    def flops(self, q: Value, k: Value, v: Value, mask: Value | None) -> Size:
        batch, heads, time, width = q.shape
        kept = k.shape[1] * (2 * v.shape[3] + 1)  # into the sums
        read = heads * 2 * (v.shape[3] + 1)  # out of them
        return batch * time * width * (kept + read)

    def backward(self, takes: Sequence[bool], q: Value, k: Value, v: Value, mask: Value | None) -> Size:
        of_q, of_k, of_v, _ = takes
        batch, heads, time, width = q.shape
        kept, read = k.shape[1] * (2 * v.shape[3] + 1), heads * 2 * (v.shape[3] + 1)
        sums = read * (of_q + (of_k or of_v)) + kept * of_k + k.shape[1] * 2 * v.shape[3] * of_v
        return batch * time * width * sums

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        """q, k, v, y, and Σ φ(k) [v, 1]ᵀ, of each chunk where it is causal."""
        _, k, v, _ = inputs
        chunks = ceil_div(k.shape[2], CHUNK) if self.causal else 1
        yield from (*inputs, outputs[0], Value("", (*k.shape[:2], chunks, k.shape[3], v.shape[3] + 1), k.dtype))

    def reference(
        self,
        np: Any,
        weights: Weights,
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None,
        kv_sum: Array | None = None,
        key_sum: Array | None = None,
    ) -> tuple[Array, ...]:
        (batch, heads, time, width), (groups, wide) = q.shape, (k.shape[1], v.shape[3])
        real = np.ones((batch, time), bool) if mask is None else mask[:, mask.shape[1] - time :]
        q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
        sums = np.zeros((batch, groups, width, wide)) if kv_sum is None else kv_sum.copy()
        total = np.zeros((batch, groups, width)) if key_sum is None else key_sum.copy()
        y = np.zeros((batch, heads, time, wide), v.dtype)
        for b, g in np.ndindex(batch, groups):
            added = [(np.outer(k[b, g, j], v[b, g, j]), k[b, g, j]) if real[b, j] else (0, 0) for j in range(time)]
            for i in range(time):
                for outer, key in added[i : i + 1] if self.causal else added if i == 0 else ():
                    sums[b, g] += outer
                    total[b, g] += key
                for h in range(g * (heads // groups), (g + 1) * (heads // groups)):
                    divisor = q[b, h, i] @ total[b, g]
                    y[b, h, i] = q[b, h, i] @ sums[b, g] / divisor if divisor else 0
        return (y, sums, total) if self.looks_back else (y,)

    def torch(
        self,
        t: TorchWriter,
        q: Expr,
        k: Expr,
        v: Expr,
        mask: Expr | None,
        kv_sum: Expr | None = None,
        key_sum: Expr | None = None,
    ) -> Expr:
        arguments = ", ".join([q, k, v, *([mask] if mask else ["None"] if kv_sum else [])])
        if not self.causal:
            return Expr(f"{t.use(_LINEAR)}({arguments})")
        past = f", {kv_sum}, {key_sum}" if kv_sum else ""
        return Expr(f"{t.use(_CAUSAL)}({arguments}{past}){'' if self.looks_back else '[0]'}")

    def onnx(
        self,
        o: OnnxWriter,
        q: Any,
        k: Any,
        v: Any,
        mask: Any | None,
        kv_sum: Any | None = None,
        key_sum: Any | None = None,
    ) -> tuple[Any, ...]:
        one, time, heads = o.scalar(1.0), o.size(q, 2), o.size(q, 1)
        groups, width, wide = o.size(k, 1), o.size(q, 3), o.Add(o.size(v, 3), o.ints(1))
        shared = o.Div(heads, groups)
        q = o.Reshape(_features(o, q), o.Concat(o.ints(0), groups, shared, time, width, axis=0))
        k = _features(o, k)
        if mask is not None:
            total = o.size(mask, 1)
            real = o.Slice(mask, o.Sub(total, time), total, o.ints(1))
            k = o.Where(o.Unsqueeze(real, o.ints(1, 3)), k, o.scalar(0.0))
        v = o.Pad(v, o.ints(0, 0, 0, 0, 0, 0, 0, 1), one)
        if self.causal:
            start = None if kv_sum is None else o.Concat(kv_sum, o.Unsqueeze(key_sum, o.ints(-1)), axis=3)
            y, last = _chunked(o, (q, k, v), start, (time, width, wide))
        else:
            sums = o.MatMul(o.Transpose(k, perm=[0, 1, 3, 2]), v)
            y, last = o.MatMul(q, o.Unsqueeze(sums, o.ints(2))), None
        values, counts = _apart(o, y, wide, 4)
        mean = o.Div(values, o.Where(o.Equal(counts, o.scalar(0.0)), one, counts))
        mean = o.Reshape(mean, o.Concat(o.ints(0), heads, time, o.Sub(wide, o.ints(1)), axis=0))
        if not self.looks_back:
            return (mean,)
        kept, count = _apart(o, last, wide, 3)
        return mean, kept, o.Squeeze(count, o.ints(3))


def _features(o: OnnxWriter, x: Any) -> Any:
    """φ(x) = elu(x) + 1, as relu(x) + e^min(x, 0): onnxruntime has this opset's Elu only on the CPU."""
    return o.Add(o.Relu(x), o.Exp(o.Min(x, o.scalar(0.0))))


def _apart(o: OnnxWriter, x: Any, wide: Any, axis: int) -> tuple[Any, Any]:
    """Splits off the last entry of the last axis: the others, and that one."""
    last = o.Sub(wide, o.ints(1))
    return o.Slice(x, o.ints(0), last, o.ints(axis)), o.Slice(x, last, wide, o.ints(axis))


def _chunked(
    o: OnnxWriter, qkv: tuple[Any, Any, Any], start: Any | None, sizes: tuple[Any, Any, Any]
) -> tuple[Any, Any]:
    """q[B,G,R,T,d], k[B,G,T,d], v[B,G,T,e], start[B,G,d,e]? -> y [B,G,R,T,e], and the final sum [B,G,d,e]."""
    (q, k, v), (time, width, wide) = qkv, sizes
    chunk = o.Max(o.Min(time, o.ints(CHUNK)), o.ints(1))
    count = o.Div(o.Add(time, o.Sub(chunk, o.ints(1))), chunk)
    padded = o.Mul(count, chunk)
    pads = o.Concat(o.ints(0), o.Sub(padded, time), axis=0)

    def cut(x: Any, axis: int, last: Any) -> Any:
        shape = o.Concat(*(o.size(qkv[1], n) for n in (0, 1)), *(() if axis == 2 else (o.ints(-1),)), axis=0)
        return o.Reshape(o.Pad(x, pads, None, o.ints(axis)), o.Concat(shape, count, chunk, last, axis=0))

    q, k, v = cut(q, 3, width), cut(k, 2, width), cut(v, 2, wide)
    across = o.Transpose(k, perm=[0, 1, 2, 4, 3])
    sums = o.cast(o.MatMul(across, v), "float32")  # a long sum in half precision would lose small terms
    if start is None:
        before, last = o.CumSum(sums, o.scalar(2, "int64"), exclusive=1), None
    else:
        joined = o.Concat(o.cast(o.Unsqueeze(start, o.ints(2)), "float32"), sums, axis=2)
        joined = o.CumSum(joined, o.scalar(2, "int64"))
        before = o.Slice(joined, o.ints(0), o.ints(-1), o.ints(2))
        last = o.cast(o.Squeeze(o.Slice(joined, count, o.Add(count, o.ints(1)), o.ints(2)), o.ints(2)), "float")
    pairs = o.Trilu(o.MatMul(q, o.Unsqueeze(across, o.ints(2))), upper=0)
    far = o.MatMul(q, o.Unsqueeze(o.cast(before, "float"), o.ints(2)))
    y = o.Add(far, o.MatMul(pairs, o.Unsqueeze(v, o.ints(2))))
    flat = o.Reshape(y, o.Concat(o.ints(0, 0, 0), padded, wide, axis=0))
    return o.Slice(flat, o.ints(0), time, o.ints(3)), last
