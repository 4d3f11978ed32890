"""Biases that attention adds to its scores by the distance from a query to a key.

They are computed once and shared by all layers with equal settings. Distances count real tokens, so padding changes
nothing.
"""

from __future__ import annotations

from functools import lru_cache
from math import log2
from typing import Any

from seqspec.graph.dims import Size
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, TorchWriter, Type, Weights, primitive

_ALIBI = Helper(
    "alibi_bias",
    '''
def alibi_bias(query, key, slopes, dtype):
    """-slope · |key - query| for each head's slope: query [B, 1, T, 1], key [B, 1, 1, S] -> [B, H, T, S]."""
    slopes = torch.tensor(slopes, dtype=torch.float64, device=key.device)[:, None, None]
    return (-slopes * (key - query).abs()).to(dtype)
''',
)

_RELATIVE = Helper(
    "relative_bias",
    '''
def relative_bias(query, key, table, starts, bidirectional):
    """table[bucket, head] for the bucket of each way key - query, -> [B, H, T, S].

    Bucket n + 1 begins at `starts[n]` tokens; keys behind the query have buckets of their own, or none if not so.
    """
    way = key - query
    length = way.abs() if bidirectional else (-way).clamp(min=0)
    bucket = torch.bucketize(length, torch.tensor(starts, device=key.device), right=True)
    if bidirectional:
        bucket = bucket + (way > 0) * (len(starts) + 1)
    return table[bucket.squeeze(1)].permute(0, 3, 1, 2)
''',
)


@primitive
class AlibiBias(Op):
    """query [B, 1, T, 1], key [B, 1, 1, S], x -> −slope_h · |key − query| [B, H, T, S] in the dtype of x.

    Slopes are 2^(−8 i / m) for i = 1 … m, m the largest power of two up to `heads`, and the odd ones of 2m for the
    rest (Press et al. 2022). Keys on both sides of a query are treated alike; causal models such as MPT and BLOOM have
    only one side.
    """

    likes = (2,)

    heads: int

    @property
    def slopes(self) -> list[float]:
        """One for each head."""
        most = 2 ** int(log2(self.heads))
        more = [2 ** (-4 * i / most) for i in range(1, 2 * most, 2)]
        return [2 ** (-8 * i / most) for i in range(1, most + 1)] + more[: self.heads - most]

    def infer(self, query: Value, key: Value, x: Value) -> tuple[Type, ...]:
        return (Type((query.shape[0], self.heads, query.shape[2], key.shape[3]), x.dtype),)

    def flops(self, query: Value, key: Value, x: Value) -> Size:
        return query.shape[0] * self.heads * query.shape[2] * key.shape[3]

    def reference(self, np: Any, weights: Weights, query: Array, key: Array, x: Array) -> tuple[Array, ...]:
        return ((-np.array(self.slopes)[:, None, None] * np.abs(key - query)).astype(x.dtype),)

    def torch(self, t: TorchWriter, query: Expr, key: Expr, x: Expr) -> Expr:
        return Expr(f"{t.use(_ALIBI)}({query}, {key}, {self.slopes}, {x.tight}.dtype)")

    def onnx(self, o: OnnxWriter, query: Any, key: Any, x: Any) -> tuple[Any, ...]:
        way = o.cast(o.Abs(o.Sub(key, query)), "float")
        return (o.Mul(way, o.const([[[-slope]] for slope in self.slopes])),)


@primitive
class RelativeBias(Op):
    """query [B, 1, T, 1], key [B, 1, 1, S] -> weight[bucket(key − query), head] [B, H, T, S]; weight[buckets, H].

    Half of the buckets hold one distance each, the others grow by a constant factor up to `max_distance`, and the last
    takes everything beyond. With `bidirectional`, half of the buckets are for keys after the query; without it, such
    keys count as distance 0 (T5).
    """

    heads: int
    buckets: int
    max_distance: int
    bidirectional: bool

    @property
    def starts(self) -> list[int]:
        """The distance at which each bucket after the first begins, on one side."""
        count = self.buckets // 2 if self.bidirectional else self.buckets
        return list(_starts(count, self.max_distance))

    def bucket(self, way: int) -> int:
        """The row of the table for a key that comes `way` tokens after the query."""
        length = abs(way) if self.bidirectional else max(-way, 0)
        starts = self.starts
        behind = len(starts) + 1 if self.bidirectional and way > 0 else 0
        return behind + sum(start <= length for start in starts)

    def infer(self, query: Value, key: Value) -> tuple[Type, ...]:
        return (Type((query.shape[0], self.heads, query.shape[2], key.shape[3])),)

    def params(self) -> tuple[Param, ...]:
        return (Param("weight", (self.buckets, self.heads), init=Init("normal", (0.02,))),)

    def flops(self, query: Value, key: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, query: Array, key: Array) -> tuple[Array, ...]:
        buckets = np.vectorize(self.bucket, otypes=[np.int64])((key - query)[:, 0])
        return (weights["weight"][buckets].transpose(0, 3, 1, 2),)

    def declare(self) -> str:
        return f"nn.Embedding({self.buckets}, {self.heads})"

    def torch(self, t: TorchWriter, query: Expr, key: Expr) -> Expr:
        table = f"{t.module}.weight"
        return Expr(f"{t.use(_RELATIVE)}({query}, {key}, {table}, {self.starts}, {self.bidirectional})")

    def onnx(self, o: OnnxWriter, query: Any, key: Any) -> tuple[Any, ...]:
        far = self.starts[-1]  # everything beyond is in the last bucket
        buckets = o.const([self.bucket(way) for way in range(-far, far + 1)], "int64")
        way = o.Max(o.Min(o.Sub(key, query), o.ints(far)), o.ints(-far))
        rows = o.Gather(buckets, o.Add(o.Squeeze(way, o.ints(1)), o.ints(far)))
        return (o.Transpose(o.Gather(o.param("weight"), rows), perm=[0, 3, 1, 2]),)


@lru_cache
def _starts(count: int, max_distance: int) -> tuple[int, ...]:
    """Bucket b of n begins where (distance / exact)^(n − exact) ≥ (max_distance / exact)^(b − exact), exact = n / 2.

    In integers, since rounded logarithms may fall on either side of a bound.
    """
    exact = count // 2
    starts, distance = list(range(1, exact + 1)), exact
    for bucket in range(exact + 1, count):
        power, step = count - exact, bucket - exact
        while distance**power < max_distance**step * exact ** (power - step):
            distance += 1
        starts.append(distance)
    return tuple(starts)
