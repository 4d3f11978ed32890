"""Ops that only rearrange elements."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive


@primitive
class Concat(Op):
    """x[..., I], y[..., J], … -> [..., I + J + …]"""

    positionwise = True

    def infer(self, *inputs: Value) -> tuple[Type, ...]:
        first = inputs[0]
        if any(x.shape[:-1] != first.shape[:-1] for x in inputs):
            raise ShapeError(f"{' and '.join(show(x.shape) for x in inputs)} cannot be joined on the last axis")
        width = reduce(add, (x.shape[-1] for x in inputs))
        return (Type((*first.shape[:-1], width), first.dtype),)

    def flops(self, *inputs: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, *inputs: Array) -> tuple[Array, ...]:
        return (np.concatenate(inputs, -1),)

    def torch(self, t: TorchWriter, *inputs: Expr) -> Expr:
        return Expr(f"torch.cat([{', '.join(inputs)}], -1)")

    def onnx(self, o: OnnxWriter, *inputs: Any) -> tuple[Any, ...]:
        return (o.Concat(*inputs, axis=-1),)


@primitive
class Squeeze(Op):
    """x -> x without the axis, which has size 1."""

    view = True

    axis: int

    def infer(self, x: Value) -> tuple[Type, ...]:
        shape = list(x.shape)
        if shape.pop(self.axis) != 1:
            raise ShapeError(f"axis {self.axis} of {show(x.shape)} is not of size 1")
        return (Type(tuple(shape), x.dtype, x.optional),)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (np.squeeze(x, self.axis),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{x.tight}.squeeze({self.axis})")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (o.Squeeze(x, o.ints(self.axis)),)


@primitive
class Unsqueeze(Op):
    """x -> x with a new axis of size 1, at `axis` of the result."""

    view = True

    axis: int

    def infer(self, x: Value) -> tuple[Type, ...]:
        rank = len(x.shape) + 1
        if not -rank <= self.axis < rank:
            raise ShapeError(f"{show(x.shape)} cannot get an axis at {self.axis}")
        at = self.axis % rank
        return (Type((*x.shape[:at], 1, *x.shape[at:]), x.dtype),)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (np.expand_dims(x, self.axis),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{x.tight}.unsqueeze({self.axis})")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (o.Unsqueeze(x, o.ints(self.axis)),)


@primitive
class SplitHeads(Op):
    """x[B, T, H·d] -> [B, H, T, d]; head h holds channels h·d to (h + 1)·d."""

    view = True
    by_order = True

    heads: int
    width: int

    def infer(self, x: Value) -> tuple[Type, ...]:
        if len(x.shape) != 3 or x.shape[2] != self.heads * self.width:
            raise ShapeError(f"{show(x.shape)} cannot be split into {self.heads} heads of width {self.width}")
        return (Type((x.shape[0], self.heads, x.shape[1], self.width), x.dtype),)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x.reshape(*x.shape[:2], self.heads, self.width).swapaxes(1, 2),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{x.tight}.unflatten(-1, ({self.heads}, {self.width})).transpose(1, 2)")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (o.Transpose(o.Reshape(x, o.ints(0, 0, self.heads, self.width)), perm=[0, 2, 1, 3]),)


@primitive
class MergeHeads(Op):
    """x[B, H, T, d] -> [B, T, H·d]"""

    view = True
    by_order = True

    def infer(self, x: Value) -> tuple[Type, ...]:
        if len(x.shape) != 4:
            raise ShapeError(f"heads are merged from [B, H, T, d], not {show(x.shape)}")
        batch, heads, time, width = x.shape
        return (Type((batch, time, heads * width), x.dtype),)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        batch, heads, time, width = x.shape
        return (x.swapaxes(1, 2).reshape(batch, time, heads * width),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{x.tight}.transpose(1, 2).flatten(2)")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (o.Reshape(o.Transpose(x, perm=[0, 2, 1, 3]), o.ints(0, 0, -1)),)
