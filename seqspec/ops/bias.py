"""x[..., N] -> x + b"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Param, Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive


@primitive
class Bias(Op):
    """x[..., N] -> x + bias; bias[N] starts at zeros. A tied linear map can have one of its own."""

    positionwise = True

    width: int

    def infer(self, x: Value) -> tuple[Type, ...]:
        if x.shape[-1] != self.width:
            raise ShapeError(f"a bias of width {self.width} is given {show(x.shape)}")
        return (Type(x.shape, x.dtype),)

    def params(self) -> tuple[Param, ...]:
        return (Param("bias", (self.width,)),)

    def flops(self, x: Value) -> Size:
        return prod(x.shape)

    def backward(self, takes: Sequence[bool], x: Value) -> Size:
        return self.flops(x)  # the sum over the rows

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x + weights["bias"],)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr.infix(f"{x.tight} + {t.param('bias')}")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (o.Add(x, o.param("bias")),)
