"""One step of a recurrent layer, for loops whose body does more than that."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights
from seqspec.ops.gru import Reset, Update
from seqspec.ops.lstm import check_forget_bias, forget_init
from seqspec.ops.recurrent import Bias, parameter_shapes, uniform
from seqspec.ops.rnn import Activation


@dataclass(frozen=True)
class Cell(Op):
    """x[B,I], h[B,H] (c) -> h'[B,H] (c'): weight_ih, weight_hh, bias_ih, bias_hh as torch's cells name them."""

    input_size: int
    hidden_size: int
    bias: Bias = "double"

    gates: ClassVar[int]
    carried: ClassVar[tuple[str, ...]] = ("h",)

    def infer(self, x: Value, *state: Value) -> tuple[Type, ...]:
        if x.shape[-1] != self.input_size:
            raise ShapeError(f"a cell of input size {self.input_size} is given {show(x.shape)}")
        after = (*x.shape[:-1], self.hidden_size)
        if [s.shape for s in state] != [after for _ in self.carried]:
            given = ", ".join(show(s.shape) for s in state)
            raise ShapeError(f"a cell needs {' and '.join(self.carried)} {show(after)}, not {given or 'nothing'}")
        return tuple(Type(after) for _ in self.carried)

    def params(self) -> tuple[Param, ...]:
        shapes = parameter_shapes(self.gates, self.input_size, self.hidden_size, self.bias)
        return tuple(Param(name, shape, init=self.initial(name)) for name, shape in shapes.items())

    def initial(self, name: str) -> Init:
        """How the parameter of this name starts."""
        return uniform(self.hidden_size)

    def flops(self, x: Value, *state: Value) -> Size:
        """The two matrices; gates and biases count nothing."""
        return 2 * prod(x.shape[:-1]) * self.gates * self.hidden_size * (self.input_size + self.hidden_size)

    def reference(self, np: Any, weights: Weights, x: Array, *state: Array) -> tuple[Array, ...]:
        raise NotImplementedError

    def torch(self, t: TorchWriter, x: Expr, *state: Expr) -> Expr:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, x: Any, *state: Any) -> tuple[Any, ...]:
        raise NotImplementedError


@dataclass(frozen=True)
class GruCell(Cell):
    """x[B,I], h[B,H] -> h'[B,H]; `reset` and `update` as in `Gru`."""

    reset: Reset = "after"
    update: Update = "keep"

    gates: ClassVar[int] = 3


@dataclass(frozen=True)
class LstmCell(Cell):
    """x[B,I], h[B,H], c[B,H] -> h'[B,H], c'[B,H]; `forget_bias` as in `Lstm`."""

    forget_bias: float | None = None

    gates: ClassVar[int] = 4
    carried: ClassVar[tuple[str, ...]] = ("h", "c")

    def __post_init__(self) -> None:
        check_forget_bias(self.forget_bias, self.bias)

    def initial(self, name: str) -> Init:
        return forget_init(name, self.hidden_size, self.forget_bias)


@dataclass(frozen=True)
class RnnCell(Cell):
    """x[B,I], h[B,H] -> h'[B,H]; h' = f(W x + b + U h + c)."""

    activation: Activation = "tanh"

    gates: ClassVar[int] = 1
