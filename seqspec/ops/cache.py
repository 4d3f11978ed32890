"""Caches: keys and values that grow from call to call, and tensors computed once."""

from __future__ import annotations

from typing import Any

from seqspec.graph.dims import PAST, Size, dim, show
from seqspec.graph.ir import State, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive

_APPEND = Helper(
    "append",
    '''
def append(past, x):
    """Joins x[B, G, T, d] to what came before it, if anything did."""
    return x if past is None else torch.cat([past, x], 2)
''',
)


@primitive
class Append(Op):
    """x[B, G, T, d] -> [B, G, P + T, d]: the past, then x. The result is the state `name`, the next call's past."""

    view = True  # before there is a past, as in training

    name: str

    def infer(self, x: Value) -> tuple[Type, ...]:
        if len(x.shape) != 4:
            raise ShapeError(f"a cache holds [B, G, T, d], not {show(x.shape)}")
        batch, heads, time, width = x.shape
        return (Type((batch, heads, dim(PAST) + time, width), x.dtype),)

    def states(self, x: Value) -> tuple[State, ...]:
        batch, heads, _, width = x.shape
        return (State(self.name, (batch, heads, dim(PAST), width), 0, x.dtype, cache=True),)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array, past: Array | None) -> tuple[Array, ...]:
        return (x if past is None else np.concatenate([past, x], 2),)

    def torch(self, t: TorchWriter, x: Expr, past: Expr | None) -> Expr:
        return x if past is None else Expr(f"{t.use(_APPEND)}({past}, {x})")

    def onnx(self, o: OnnxWriter, x: Any, past: Any | None) -> tuple[Any, ...]:
        return (x if past is None else o.Concat(past, x, axis=2),)


@primitive
class Hold(Op):
    """x -> x, computed on the first call and kept. Later calls read the state `name` and do not evaluate x.

    `cache` says that it holds the keys or values of an attention.
    """

    view = True

    name: str
    cache: bool = False

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (Type(x.shape, x.dtype, x.optional),)

    def states(self, x: Value) -> tuple[State, ...]:
        return (State(self.name, x.shape, 0, x.dtype, held=True, cache=self.cache),)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array | None, past: Array | None) -> tuple[Array, ...]:
        return (x if past is None else past,)

    def torch(self, t: TorchWriter, x: Expr, past: Expr | None) -> Expr:
        # a conditional expression, since x may be inlined here and must not run when there is a past
        return x if past is None else Expr.infix(f"{x.tight} if {past} is None else {past}")

    def onnx(self, o: OnnxWriter, x: Any | None, past: Any | None) -> tuple[Any, ...]:
        return (x if past is None else past,)
