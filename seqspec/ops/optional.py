"""An optional input with zeros as its default."""

from __future__ import annotations

from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive


@primitive
class OrZeros(Op):
    """given[B, T]?, like[B, T] -> given, or zeros like `like` if it is None."""

    likes = (1,)
    by_order = True

    def infer(self, given: Value | None, like: Value) -> tuple[Type, ...]:
        if given is not None and (given.shape, given.dtype) != (like.shape, like.dtype):
            raise ShapeError(f"{show(given.shape)} stands beside {show(like.shape)} and must be like it")
        return (Type(like.shape, like.dtype),)

    def flops(self, given: Value | None, like: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, given: Array | None, like: Array) -> tuple[Array, ...]:
        return (np.zeros_like(like) if given is None else given,)

    def torch(self, t: TorchWriter, given: Expr, like: Expr) -> Expr:
        return Expr.infix(f"torch.zeros_like({like}) if {given} is None else {given}")

    def onnx(self, o: OnnxWriter, given: Any, like: Any) -> tuple[Any, ...]:
        return (o.Sub(like, like) if given is None else given,)
