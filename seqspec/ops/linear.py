"""x[..., I] -> x Wᵀ + b [..., O]"""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import (
    Array,
    Expr,
    OnnxWriter,
    Op,
    ShapeError,
    TorchWriter,
    Type,
    Weights,
    primitive,
)


@primitive
class Linear(Op):
    """x[..., I] -> x Wᵀ + b [..., O]; weight[O, I] as torch stores it, both uniform in ±1/√I at the start."""

    inputs: int
    outputs: int
    bias: bool = True

    def infer(self, x: Value) -> tuple[Type, ...]:
        if x.shape[-1] != self.inputs:
            raise ShapeError(f"a linear map of width {self.inputs} is given {show(x.shape)}")
        return (Type((*x.shape[:-1], self.outputs)),)

    def params(self) -> tuple[Param, ...]:
        init = Init("uniform", (1 / sqrt(self.inputs),))
        weight = Param("weight", (self.outputs, self.inputs), init=init)
        return (weight, Param("bias", (self.outputs,), init=init)) if self.bias else (weight,)

    def flops(self, x: Value) -> Size:
        return 2 * prod(x.shape) * self.outputs

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        y = x @ weights["weight"].T
        return (y + weights["bias"] if self.bias else y,)

    def declare(self) -> str:
        return f"nn.Linear({self.inputs}, {self.outputs}{'' if self.bias else ', bias=False'})"

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{t.module}({x})")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        weight = o.derived("transposed", (self.inputs, self.outputs), lambda np, w: w.T, "weight")
        y = o.MatMul(x, weight)
        return (o.Add(y, o.param("bias")) if self.bias else y,)


@primitive
class TiedLinear(Op):
    """x[..., I], weight[O, I] given -> x Wᵀ [..., O]: one table for embedding and output."""

    def infer(self, x: Value, weight: Value) -> tuple[Type, ...]:
        if x.shape[-1] != weight.shape[-1]:
            raise ShapeError(f"a tied table {show(weight.shape)} cannot read {show(x.shape)}")
        return (Type((*x.shape[:-1], weight.shape[0])),)

    def flops(self, x: Value, weight: Value) -> Size:
        return 2 * prod(x.shape) * weight.shape[0]

    def reference(self, np: Any, weights: Weights, x: Array, weight: Array) -> tuple[Array, ...]:
        return (x @ weight.T,)

    def torch(self, t: TorchWriter, x: Expr, weight: Expr) -> Expr:
        return Expr(f"F.linear({x}, {weight})")

    def onnx(self, o: OnnxWriter, x: Any, weight: Any) -> tuple[Any, ...]:
        # a derived transpose would store the table a second time; onnxruntime folds this one when it loads
        return (o.MatMul(x, o.Transpose(weight, perm=[1, 0])),)
