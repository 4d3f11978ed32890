"""Attention around a position that the query predicts: local-p of Luong, Pham and Manning 2015."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.attend import MASKED_SOFTMAX, MaskedSoftmax
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive

_REAL_PLACES = Helper(
    "real_places",
    '''
def real_places(memory, mask):
    """places[B, S], counting real positions from 0, and how many there are [B, 1]; all of memory[B, S, M] unmasked"""
    real = memory.new_ones(memory.shape[:2], dtype=torch.bool) if mask is None else mask
    return real.cumsum(1) - 1, real.sum(1, keepdim=True)
''',
)

_LOCAL_ALIGNMENT = Helper(
    "local_alignment",
    '''
def local_alignment(scores, center, places, lengths, mask, size):
    """softmax of scores[B, S] over |place - p| <= size, times exp(-2 ((place - p) / size)^2); p = center * length

    In float64, since places go on where half precision has no odd numbers left.
    """
    distance = places - lengths * center.double()
    near = distance.abs() <= size
    weights = masked_softmax(scores, near if mask is None else near & mask)
    return weights * torch.exp(-2 * (distance / size) ** 2).to(scores.dtype)
''',
    (MASKED_SOFTMAX,),
)


@primitive
class RealPlaces(Op):
    """memory[B,S,M], mask[B,S]? -> places[B,S] int64, the index of each among the real positions; lengths[B,1]."""

    likes = (0,)

    def infer(self, memory: Value, mask: Value | None = None) -> tuple[Type, ...]:
        if mask is not None and mask.shape != memory.shape[:2]:
            raise ShapeError(f"a mask {show(mask.shape)} does not fit a memory {show(memory.shape)}")
        return (Type(memory.shape[:2], "int64"), Type((memory.shape[0], 1), "int64"))

    def flops(self, memory: Value, mask: Value | None = None) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, memory: Array, mask: Array | None = None) -> tuple[Array, ...]:
        real = np.ones(memory.shape[:2], bool) if mask is None else mask
        return (np.cumsum(real, 1, dtype=np.int64) - 1, real.sum(1, keepdims=True, dtype=np.int64))

    def torch(self, t: TorchWriter, memory: Expr, mask: Expr | None = None) -> Expr:
        return Expr(f"{t.use(_REAL_PLACES)}({memory}, {mask})")

    def onnx(self, o: OnnxWriter, memory: Any, mask: Any = None) -> tuple[Any, ...]:
        shape = o.Concat(o.size(memory, 0), o.size(memory, 1), axis=0)
        real = o.Expand(o.scalar(1, "int64"), shape) if mask is None else o.cast(mask, "int64")
        seen = o.CumSum(real, o.scalar(1, "int64"))
        return (o.Sub(seen, o.scalar(1, "int64")), o.ReduceSum(real, o.ints(1), keepdims=1))


@primitive
class LocalAlignment(Op):
    """scores[B,S], center[B,1], places[B,S], lengths[B,1], mask[B,S]? -> weights[B,S]

    p = center · length; softmax over the True columns with |place − p| ≤ size, times exp(−(place − p)² / 2σ²) with
    σ = size / 2. The weights do not sum to one, as in the paper.
    """

    size: int

    def infer(
        self, scores: Value, center: Value, places: Value, lengths: Value, mask: Value | None = None
    ) -> tuple[Type, ...]:
        one = (scores.shape[0], 1)
        if (center.shape, places.shape, lengths.shape) != (one, scores.shape, one):
            shapes = ", ".join(show(v.shape) for v in (center, places, lengths))
            raise ShapeError(f"a center, places and lengths {shapes} do not fit scores {show(scores.shape)}")
        return MaskedSoftmax().infer(scores, mask)

    def flops(self, scores: Value, *_: Value | None) -> Size:
        return 0

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from (*inputs[1:4], outputs[0])

    def reference(
        self,
        np: Any,
        weights: Weights,
        scores: Array,
        center: Array,
        places: Array,
        lengths: Array,
        mask: Array | None = None,
    ) -> tuple[Array, ...]:
        distance = places - lengths * center
        near = np.abs(distance) <= self.size
        (soft,) = MaskedSoftmax().reference(np, {}, scores, near if mask is None else near & mask)
        sigma = self.size / 2
        return (soft * np.exp(-(distance**2) / (2 * sigma**2)),)

    def torch(
        self, t: TorchWriter, scores: Expr, center: Expr, places: Expr, lengths: Expr, mask: Expr | None = None
    ) -> Expr:
        return Expr(f"{t.use(_LOCAL_ALIGNMENT)}({scores}, {center}, {places}, {lengths}, {mask}, {self.size})")

    def onnx(
        self, o: OnnxWriter, scores: Any, center: Any, places: Any, lengths: Any, mask: Any = None
    ) -> tuple[Any, ...]:
        place, length, fraction = (o.cast(v, "float64") for v in (places, lengths, center))
        distance = o.Sub(place, o.Mul(length, fraction))
        near = o.LessOrEqual(o.Abs(distance), o.scalar(self.size, "float64"))
        (soft,) = MaskedSoftmax().onnx(o, scores, near if mask is None else o.And(near, mask))
        sizes = o.Div(distance, o.scalar(self.size, "float64"))
        nearness = o.Exp(o.Mul(o.scalar(-2.0, "float64"), o.Mul(sizes, sizes)))
        return (o.Mul(soft, o.cast(nearness, "float")),)
