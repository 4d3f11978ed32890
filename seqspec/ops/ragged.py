"""Padding inside a loop over time: which steps are real, and a state that is kept where they are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive

_REAL_STEPS = Helper(
    "real_steps",
    '''
def real_steps(mask, x):
    """The last T columns of mask[B, S] for x[B, T, ...]; all real where there is no mask."""
    length = x.size(1)
    return x.new_ones(x.size(0), length, dtype=torch.bool) if mask is None else mask[:, mask.size(1) - length :]
''',
)


@primitive
class RealSteps(Op):
    """mask[B, S]?, x[B, T, …] -> bool[B, T]: the last T columns of the mask, or True everywhere without one."""

    def infer(self, mask: Value | None, x: Value) -> tuple[Type, ...]:
        return (Type(x.shape[:2], "bool"),)

    def flops(self, mask: Value | None, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, mask: Array | None, x: Array) -> tuple[Array, ...]:
        batch, length = x.shape[:2]
        return (np.ones((batch, length), bool) if mask is None else mask[:, mask.shape[1] - length :],)

    def torch(self, t: TorchWriter, mask: Expr, x: Expr) -> Expr:
        return Expr(f"{t.use(_REAL_STEPS)}({mask}, {x})")

    def onnx(self, o: OnnxWriter, mask: Any, x: Any) -> tuple[Any, ...]:
        length = o.size(x, 1)
        if mask is None:
            shape = o.Concat(o.size(x, 0), length, axis=0)
            return (o.Expand(o.scalar(1, "bool"), shape),)
        end = o.size(mask, 1)
        return (o.Slice(mask, o.Sub(end, length), end, o.ints(1)),)


@primitive
class KeepAtPadding(Op):
    """real[B], new[B, H], old[B, H] -> new in rows whose step is real, else old."""

    def infer(self, real: Value, new: Value, old: Value) -> tuple[Type, ...]:
        if new.shape != old.shape:
            raise ShapeError(f"a state {show(old.shape)} cannot become {show(new.shape)}")
        return (Type(new.shape, new.dtype),)

    def flops(self, real: Value, new: Value, old: Value) -> Size:
        return 0

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield inputs[0]

    def reference(self, np: Any, weights: Weights, real: Array, new: Array, old: Array) -> tuple[Array, ...]:
        return (np.where(real[:, None], new, old),)

    def torch(self, t: TorchWriter, real: Expr, new: Expr, old: Expr) -> Expr:
        return Expr(f"torch.where({real.tight}[:, None], {new}, {old})")

    def onnx(self, o: OnnxWriter, real: Any, new: Any, old: Any) -> tuple[Any, ...]:
        return (o.Where(o.Unsqueeze(real, o.ints(1)), new, old),)
