"""x -> x ≠ 0"""

from __future__ import annotations

from typing import Any

from seqspec.graph.dims import Size
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, TorchWriter, Type, Weights, primitive


@primitive
class ToBool(Op):
    """x -> x ≠ 0, as bool: the mask that an attention_mask of ones and zeros says."""

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (Type(x.shape, "bool"),)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x != 0,)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{x.tight}.bool()")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (o.cast(x, "bool"),)
