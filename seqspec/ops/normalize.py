"""x / ‖x‖₂ over the last axis."""

from __future__ import annotations

from math import prod
from typing import Any

from seqspec.graph.dims import Size
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, TorchWriter, Type, Weights, primitive

EPS = 1e-12  # as torch.nn.functional.normalize: a zero vector stays zero


@primitive
class Normalize(Op):
    """x[..., D] -> x / max(‖x‖₂, 1e-12), so that dot products are cosines."""

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (Type(x.shape, x.dtype),)

    def flops(self, x: Value) -> Size:
        return 2 * prod(x.shape)

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), EPS),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"F.normalize({x}, dim=-1)")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        length = o.ReduceL2(x, o.ints(-1), keepdims=1)
        return (o.Div(x, o.Max(length, o.scalar(EPS))),)
