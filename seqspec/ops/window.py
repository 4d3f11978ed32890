"""The cache of a layer with a window: of the past it keeps the keys and values that a later query may see."""

from __future__ import annotations

from functools import partial
from typing import Any

from seqspec.graph.dims import Size, dim, past_window, show, total_window
from seqspec.graph.ir import State, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive

_END = 2**63 - 1

_APPEND_WINDOW = Helper(
    "append_window",
    '''
def append_window(k, v, real, left, past_k=None, past_v=None):
    """k[B, G, T, d] and v[B, G, T, e] joined to what the past keeps, and the columns of real[B, S] for these keys.

    Keys in front that no query sees any more are dropped: those before the last `left` real tokens of every row.
    """
    if past_k is not None:
        start = real.size(1) - k.size(2)
        count = real[:, start - past_k.size(2) : start].cumsum(1)
        seen = real[:, start - past_k.size(2) : start].sum(1, keepdim=True) - left
        unseen = int((count <= seen.clamp(min=0)).sum(1).min())
        unseen = unseen if unseen >= max(1, left // 8) else 0
        k, v = torch.cat([past_k[:, :, unseen:], k], 2), torch.cat([past_v[:, :, unseen:], v], 2)
    return k, v, real[:, real.size(1) - k.size(2) :]
''',
)


@primitive
class AppendWindow(Op):
    """k[B, G, T, d], v[B, G, T, e], real[B, S] -> keys[B, G, W, d], values[B, G, W, e], real[B, W].

    The keys are those that the past keeps, then the T new ones; real tells which of these W are real, by the last
    columns of the mask of all tokens. Keys and values are the states `names`.

    No query sees further back than `left` real tokens, itself not counted. So what comes before the last `left` real
    tokens of every row of the past may be dropped. It is, once that is an eighth of a window: a copy on every call
    would cost more than it saves. Rows are dropped from together, which keeps their columns aligned.
    """

    names: tuple[str, str]
    left: int

    @property
    def spare(self) -> int:
        """The least number of columns that are dropped at once."""
        return max(1, self.left // 8)

    def infer(self, k: Value, v: Value, real: Value) -> tuple[Type, ...]:
        if len(k.shape) != 4 or k.shape[:3] != v.shape[:3]:
            raise ShapeError(f"keys {show(k.shape)} and values {show(v.shape)} do not go together")
        if real.shape[:1] != k.shape[:1] or len(real.shape) != 2:
            raise ShapeError(f"a mask {show(real.shape)} does not say which of the keys {show(k.shape)} are real")
        length = dim(total_window(self.left + 1))
        kept = tuple(Type((*x.shape[:2], length, x.shape[3]), x.dtype) for x in (k, v))
        return (*kept, Type((k.shape[0], length), "bool"))

    def states(self, k: Value, v: Value, real: Value) -> tuple[State, ...]:
        length = dim(past_window(self.left + 1))
        shapes = [(*x.shape[:2], length, x.shape[3]) for x in (k, v)]
        named = enumerate(zip(self.names, shapes, strict=True))
        return tuple(State(name, shape, output, k.dtype, cache=True) for output, (name, shape) in named)

    def flops(self, k: Value, v: Value, real: Value) -> Size:
        return 0

    def reference(
        self, np: Any, weights: Weights, k: Array, v: Array, real: Array, past_k: Array | None, past_v: Array | None
    ) -> tuple[Array, ...]:
        if past_k is not None and past_v is not None:
            unseen = self._unseen(np, real[:, : real.shape[1] - k.shape[2]], past_k.shape[2])
            k, v = (np.concatenate([past[:, :, unseen:], x], 2) for past, x in ((past_k, k), (past_v, v)))
        return k, v, real[:, real.shape[1] - k.shape[2] :]

    def _unseen(self, np: Any, real: Array, length: int) -> int:
        """How many of the last `length` columns of a past come before the last `left` real tokens of every row."""
        starts = [length]
        for row in real[:, real.shape[1] - length :]:
            places = np.flatnonzero(row)
            last = places[max(len(places) - self.left, 0) :]
            starts.append(int(last[0]) if len(last) else length)
        return min(starts) if min(starts) >= self.spare else 0

    def torch(self, t: TorchWriter, k: Expr, v: Expr, real: Expr, past_k: Expr | None, past_v: Expr | None) -> Expr:
        pasts = [past for past in (past_k, past_v) if past is not None]
        return Expr(f"{t.use(_APPEND_WINDOW)}({', '.join(map(str, (k, v, real, self.left, *pasts)))})")

    def onnx(self, o: OnnxWriter, k: Any, v: Any, real: Any, past_k: Any | None, past_v: Any | None) -> tuple[Any, ...]:
        time, whole = o.size(k, 2), o.size(real, 1)
        if past_k is None:
            return k, v, o.Slice(real, o.Sub(whole, time), whole, o.ints(1))
        length, written = o.size(past_k, 2), partial(_unseen, left=self.left, spare=self.spare)
        (unseen,) = o.function("Unseen", (Type((1,), "int64"),), self, written, real, length, time)
        some = o.Squeeze(o.Greater(unseen, o.ints(0)))
        pairs = ((past_k, k), (past_v, v))

        def shortened() -> list[Any]:
            return [o.Concat(o.Slice(past, unseen, o.ints(_END), o.ints(2)), x, axis=2) for past, x in pairs]

        # an If for each layer, since even a Slice that keeps everything copies it
        keys, values = o.either(
            some, (past_k, past_v, k, v), shortened, lambda: [o.Concat(past, x, axis=2) for past, x in pairs]
        )
        kept = o.Add(o.Sub(length, unseen), time)
        return keys, values, o.Slice(real, o.Sub(whole, kept), whole, o.ints(1))


@primitive
class OfKept(Op):
    """x[…, S], real[B, W] -> x[…, W]: of a mask or a bias the columns of the keys that `AppendWindow` gives."""

    likes = (1,)

    def infer(self, x: Value, real: Value) -> tuple[Type, ...]:
        return (Type((*x.shape[:-1], real.shape[1]), x.dtype),)

    def flops(self, x: Value, real: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array, real: Array) -> tuple[Array, ...]:
        return (x[..., x.shape[-1] - real.shape[1] :],)

    def torch(self, t: TorchWriter, x: Expr, real: Expr) -> Expr:
        return Expr(f"{x.tight}[..., {x.tight}.size(-1) - {real.tight}.size(1) :]")

    def onnx(self, o: OnnxWriter, x: Any, real: Any) -> tuple[Any, ...]:
        whole = o.size(x, -1)
        return (o.Slice(x, o.Sub(whole, o.size(real, 1)), whole, o.ints(-1)),)


def _unseen(o: OnnxWriter, real: Any, length: Any, time: Any, *, left: int, spare: int) -> list[Any]:
    """real[B, S], the length of the past kept and T, as [1] -> how many columns of that past to drop, [1]."""

    def counted() -> list[Any]:
        end = o.Sub(o.Shape(real, start=1, end=2), time)
        past = o.cast(o.Slice(real, o.Sub(end, length), end, o.ints(1)), "int64")
        seen = o.Max(o.Sub(o.ReduceSum(past, o.ints(1), keepdims=1), o.ints(left)), o.ints(0))
        before = o.LessOrEqual(o.CumSum(past, o.scalar(1, "int64")), seen)
        columns = o.ReduceSum(o.cast(before, "int32"), o.ints(1), keepdims=0)
        unseen = o.cast(o.ReduceMin(columns, keepdims=1), "int64")
        return [o.Where(o.GreaterOrEqual(unseen, o.ints(spare)), unseen, o.ints(0))]

    long = o.Squeeze(o.GreaterOrEqual(length, o.ints(left + spare)))
    return o.either(long, (real,), counted, lambda: [o.Identity(o.ints(0))])
