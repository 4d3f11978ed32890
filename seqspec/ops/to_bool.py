"""x -> x ≠ 0"""

from __future__ import annotations

from typing import Any

from seqspec.graph.dims import Size
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, TorchWriter, Type, Weights, primitive

_TO_BOOL = Helper(
    "to_bool",
    '''
def to_bool(mask):
    """mask ≠ 0; one of floats may be added to scores elsewhere, where 0 is what may be seen."""
    if mask.is_floating_point():
        raise TypeError("a mask is 1 or true where a query may attend: booleans or integers, not floats")
    return mask.bool()
''',
)


@primitive
class ToBool(Op):
    """x -> x ≠ 0, as bool: the mask that an attention_mask of ones and zeros says."""

    by_order = True

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (Type(x.shape, "bool"),)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x != 0,)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{t.use(_TO_BOOL)}({x})")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (o.cast(x, "bool"),)
