"""Cuts off padding that all rows of a batch have in common."""

from __future__ import annotations

from typing import Any

from seqspec.graph.dims import Size, dim, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive

TRIMMED = dim("trimmed_sequence_length")

_REAL_SPAN = Helper(
    "real_span",
    '''
def real_span(mask):
    """The first position at which any row of mask[B, T] is real, and the one behind the last; all, if none is."""
    real = mask.any(0).nonzero()
    return (int(real[0]), int(real[-1]) + 1) if len(real) else (0, mask.size(1))
''',
)


@primitive
class Trim(Op):
    """x[B, T, …], mask[B, T] -> x[B, T', …]: from the first position at which any row is real to the last.

    Where no row has a real token, nothing is cut off.
    """

    def infer(self, x: Value, mask: Value) -> tuple[Type, ...]:
        if x.shape[:2] != mask.shape:
            raise ShapeError(f"a mask {show(mask.shape)} does not say what of {show(x.shape)} is padding")
        return (Type((x.shape[0], TRIMMED, *x.shape[2:]), x.dtype),)

    def flops(self, x: Value, mask: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array, mask: Array) -> tuple[Array, ...]:
        start, end = _span(np, mask)
        return (x[:, start:end],)

    def torch(self, t: TorchWriter, x: Expr, mask: Expr) -> Expr:
        return Expr(f"{x.tight}[:, slice(*{t.use(_REAL_SPAN)}({mask}))]")

    def onnx(self, o: OnnxWriter, x: Any, mask: Any) -> tuple[Any, ...]:
        start, end = _real_span(o, mask)
        return (o.Slice(x, start, end, o.ints(1)),)


def _span(np: Any, mask: Array) -> tuple[int, int]:
    real = np.flatnonzero(mask.any(0))
    return (int(real[0]), int(real[-1]) + 1) if len(real) else (0, mask.shape[1])


def _real_span(o: OnnxWriter, mask: Any) -> list[Any]:
    """Start and end, each as [1]."""

    def written(o: OnnxWriter, mask: Any) -> list[Any]:
        some = o.ReduceMax(o.cast(mask, "int32"), o.ints(0), keepdims=0)
        last = o.ArgMax(some, axis=0, keepdims=1, select_last_index=1)
        return [o.ArgMax(some, axis=0, keepdims=1), o.Add(last, o.ints(1))]

    place = Type((1,), "int64")
    return o.function("RealSpan", (place, place), None, written, mask)
