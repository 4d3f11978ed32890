"""x / ‖x‖₂ over the last axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from seqspec.graph.dims import Size
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, TorchWriter, Type, Weights, primitive

_UNIT = Helper(
    "unit",
    '''
def unit(x):
    """x / ‖x‖₂ over the last axis; a zero vector stays zero, in any dtype."""
    length = x.norm(dim=-1, keepdim=True)
    return x / length.masked_fill(length == 0, 1)
''',
)


@primitive
class Normalize(Op):
    """x[..., D] -> x / ‖x‖₂, so that dot products are cosines. A zero vector stays zero.

    There is no epsilon: that of torch.nn.functional.normalize, 1e-12, is zero in float16.
    """

    positionwise = True

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (Type(x.shape, x.dtype),)

    def flops(self, x: Value) -> Size:
        return 2 * prod(x.shape)

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        x = inputs[0]
        yield from (x, Value("", x.shape[:-1], x.dtype))  # a norm a row

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        length = np.sqrt((x * x).sum(-1, keepdims=True))
        return (x / np.where(length == 0, 1, length),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{t.use(_UNIT)}({x})")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        length = o.ReduceL2(x, o.ints(-1), keepdims=1)
        return (o.Div(x, o.Where(o.Equal(length, o.scalar(0.0)), o.scalar(1.0), length)),)
