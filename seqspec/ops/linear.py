"""x[..., I] -> x Wᵀ + b [..., O]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """x[..., I] -> x Wᵀ + b [..., O]; weight[O, I] as in torch. Weight and bias start uniform in ±gain/√I."""

    positionwise = True

    inputs: int
    outputs: int
    bias: bool = True
    gain: float = 1.0

    def infer(self, x: Value) -> tuple[Type, ...]:
        if x.shape[-1] != self.inputs:
            raise ShapeError(f"a linear map of width {self.inputs} is given {show(x.shape)}")
        return (Type((*x.shape[:-1], self.outputs)),)

    def params(self) -> tuple[Param, ...]:
        init = Init("uniform", (self.gain / sqrt(self.inputs),))
        weight = Param("weight", (self.outputs, self.inputs), init=init)
        return (weight, Param("bias", (self.outputs,), init=init)) if self.bias else (weight,)

    def flops(self, x: Value) -> Size:
        return 2 * prod(x.shape) * self.outputs

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from inputs

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        y = x @ weights["weight"].T
        return (y + weights["bias"] if self.bias else y,)

    def declare(self) -> str:
        return f"nn.Linear({self.inputs}, {self.outputs}{'' if self.bias else ', bias=False'})"

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{t.module}({x})")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        weight = o.derived("transposed", (self.inputs, self.outputs), lambda np, w: w.T, "weight")
        y, bias = o.MatMul(x, weight), self.bias_of(o)
        return (y if bias is None else o.Add(y, bias),)

    def bias_of(self, o: OnnxWriter) -> Any | None:
        """The bias in ONNX, if there is one."""
        return o.param("bias") if self.bias else None


@primitive
class TiedLinear(Op):
    """x[..., I], weight[O, I] -> x Wᵀ [..., O], where another part owns the weight, such as an embedding table."""

    positionwise = True

    def infer(self, x: Value, weight: Value) -> tuple[Type, ...]:
        if x.shape[-1] != weight.shape[-1]:
            raise ShapeError(f"a tied table {show(weight.shape)} cannot read {show(x.shape)}")
        return (Type((*x.shape[:-1], weight.shape[0])),)

    def flops(self, x: Value, weight: Value) -> Size:
        return 2 * prod(x.shape) * weight.shape[0]

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from inputs

    def reference(self, np: Any, weights: Weights, x: Array, weight: Array) -> tuple[Array, ...]:
        return (x @ weight.T,)

    def torch(self, t: TorchWriter, x: Expr, weight: Expr) -> Expr:
        return Expr(f"F.linear({x}, {weight})")

    def onnx(self, o: OnnxWriter, x: Any, weight: Any) -> tuple[Any, ...]:
        # a derived transpose would store the table a second time; onnxruntime folds this one when it loads
        return (o.MatMul(x, o.Transpose(weight, perm=[1, 0])),)


@primitive
class PartLinear(Op):
    """x[..., I] -> x W₁ᵀ [..., O], where weight[O, I + J] = [W₁ W₂]: the part of W [x; y] that belongs to x.

    `TiedPartLinear` is the other part: W₁ x + W₂ y = W [x; y].
    """

    positionwise = True

    inputs: int
    more: int
    outputs: int

    def infer(self, x: Value) -> tuple[Type, ...]:
        return Linear(self.inputs, self.outputs, False).infer(x)

    def params(self) -> tuple[Param, ...]:
        return Linear(self.inputs + self.more, self.outputs, False).params()

    def flops(self, x: Value) -> Size:
        return 2 * prod(x.shape) * self.outputs

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from inputs

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x @ weights["weight"][:, : self.inputs].T,)

    def declare(self) -> str:
        return f"nn.Linear({self.inputs + self.more}, {self.outputs}, bias=False)"

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"F.linear({x}, {t.module}.weight[:, :{self.inputs}])")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        shape = (self.inputs, self.outputs)
        return (o.MatMul(x, o.derived("first_transposed", shape, lambda np, w: w[:, : self.inputs].T, "weight")),)


@primitive
class TiedPartLinear(Op):
    """y[..., J], weight[O, I + J] -> y W₂ᵀ [..., O], where W₂ is the weight without its first I columns."""

    positionwise = True

    inputs: int

    def infer(self, y: Value, weight: Value) -> tuple[Type, ...]:
        if weight.shape[1] != self.inputs + y.shape[-1]:
            raise ShapeError(f"a map {show(weight.shape)} has no {show(y.shape)} behind column {self.inputs}")
        return (Type((*y.shape[:-1], weight.shape[0])),)

    def flops(self, y: Value, weight: Value) -> Size:
        return 2 * prod(y.shape) * weight.shape[0]

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from inputs

    def reference(self, np: Any, weights: Weights, y: Array, weight: Array) -> tuple[Array, ...]:
        return (y @ weight[:, self.inputs :].T,)

    def torch(self, t: TorchWriter, y: Expr, weight: Expr) -> Expr:
        return Expr(f"F.linear({y}, {weight}[:, {self.inputs}:])")

    def onnx(self, o: OnnxWriter, y: Any, weight: Any) -> tuple[Any, ...]:
        # transposed at run time, as in TiedLinear
        behind = o.Slice(weight, o.ints(self.inputs), o.size(weight, 1), o.ints(1))
        return (o.MatMul(y, o.Transpose(behind, perm=[1, 0])),)
