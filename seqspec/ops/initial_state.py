"""Initial states that are learned or given by the caller."""

from __future__ import annotations

from math import sqrt
from typing import Any

from seqspec.graph.dims import Shape, Size, show
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive


@primitive
class LearnedState(Op):
    """x[B, …] -> the parameter `name`[L,H] for every row [B,L,H]; it starts uniform in ±1/√H, as recurrent weights do.

    Only the batch size of x matters.
    """

    likes = (0,)

    name: str
    layers: int
    width: int

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (Type((x.shape[0], self.layers, self.width)),)

    def params(self) -> tuple[Param, ...]:
        return (Param(self.name, (self.layers, self.width), init=Init("uniform", (1 / sqrt(self.width),))),)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (np.repeat(weights[self.name][None], len(x), 0),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{t.param(self.name)}.expand({x.tight}.shape[0], -1, -1)")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        shape = o.Concat(o.size(x, 0), o.ints(self.layers, self.width), axis=0)
        return (o.Expand(o.param(self.name), shape),)


@primitive
class GivenState(Op):
    """given[B,L,H]?, x[B, …] -> given, or zeros if it is None."""

    likes = (1,)

    layers: int
    width: int

    def infer(self, given: Value | None, x: Value) -> tuple[Type, ...]:
        shape: Shape = (x.shape[0], self.layers, self.width)
        if given is not None and given.shape != shape:
            raise ShapeError(f"an initial state is {show(shape)}, not {show(given.shape)}")
        return (Type(shape),)

    def flops(self, given: Value | None, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, given: Array | None, x: Array) -> tuple[Array, ...]:
        return (np.zeros((len(x), self.layers, self.width), x.dtype) if given is None else given,)

    def torch(self, t: TorchWriter, given: Expr | None, x: Expr) -> Expr:
        zeros = f"{x.tight}.new_zeros({x.tight}.shape[0], {self.layers}, {self.width})"
        return Expr(zeros) if given is None else Expr.infix(f"{zeros} if {given} is None else {given}")

    def onnx(self, o: OnnxWriter, given: Any, x: Any) -> tuple[Any, ...]:
        if given is not None:
            return (given,)
        return (o.Expand(o.scalar(0.0), o.Concat(o.size(x, 0), o.ints(self.layers, self.width), axis=0)),)
