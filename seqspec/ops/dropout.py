"""x -> x, with elements set to zero at random while training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from seqspec.graph.dims import Size
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, TorchWriter, Type, Weights, primitive


@primitive
class Dropout(Op):
    """x -> x · Bernoulli(1 − p) / (1 − p) while training, x otherwise: each element is dropped with probability p."""

    positionwise = True

    p: float

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (Type(x.shape, x.dtype),)

    def flops(self, x: Value) -> Size:
        return prod(x.shape)

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield Value("", inputs[0].shape, "bool")  # what is dropped

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x,)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"F.dropout({x}, {self.p!r}, self.training)")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (x,)
