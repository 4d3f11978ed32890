"""Single steps of recurrent layers, for loops whose body does more than that."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.gru import GruRule, Reset, Update
from seqspec.ops.lstm import WITH_FORGET_BIAS, LstmRule, check_forget_bias, forget_init, with_forget_bias
from seqspec.ops.recurrent_rule import BIASES, Bias, Gates, Rule, parameter_shapes, step_flops, step_products, uniform
from seqspec.ops.recurrent_text import STEPWISE_CELL
from seqspec.ops.rnn import Activation, RnnRule


@primitive
class Cell(Op):
    """x[B,I], h[B,H] (c) -> h'[B,H] (c'); weight_ih, weight_hh, bias_ih, bias_hh as in torch's cells."""

    input_size: int
    hidden_size: int
    bias: Bias = "double"

    @property
    @abstractmethod
    def rule(self) -> Rule:
        """The equation of the step."""

    @property
    def native(self) -> bool:
        """Whether torch has a cell of this form."""
        return self.rule.native_cell and self.bias != "single"

    def infer(self, x: Value, *state: Value) -> tuple[Type, ...]:
        if len(x.shape) != 2 or x.shape[-1] != self.input_size:
            raise ShapeError(f"a cell of input size {self.input_size} is given {show(x.shape)}")
        after = [(x.shape[0], width) for width in self.rule.widths(self.hidden_size)]
        if [s.shape for s in state] != after:
            needed = " and ".join(f"{n} {show(s)}" for n, s in zip(self.rule.carried, after, strict=True))
            given = ", ".join(show(s.shape) for s in state)
            raise ShapeError(f"a cell needs {needed}, not {given or 'nothing'}")
        return tuple(map(Type, after))

    def params(self) -> tuple[Param, ...]:
        shapes = parameter_shapes(self.rule, self.input_size, self.hidden_size, self.bias)
        return tuple(Param(name, shape, init=self.initial(name)) for name, shape in shapes.items())

    def initial(self, name: str) -> Init:
        """The initialisation of the parameter called `name`."""
        return uniform(self.hidden_size)

    def flops(self, x: Value, *state: Value) -> Size:
        """The matrix products; gates and biases are not counted."""
        return x.shape[0] * step_flops(self.rule, self.input_size, self.hidden_size)

    def backward(self, takes: Sequence[bool], x: Value, *state: Value) -> Size:
        of_x, of_h, more = step_products(self.rule, self.input_size, self.hidden_size)
        return x.shape[0] * (of_x * (1 + takes[0]) + of_h * (1 + takes[1]) + 2 * more)

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        """x and the state, and the gates."""
        x = inputs[0]
        yield from (*inputs, Value("", (x.shape[0], self.rule.gates * self.hidden_size), x.dtype))

    def reference(self, np: Any, weights: Weights, x: Array, *state: Array) -> tuple[Array, ...]:
        return self.rule.reference(np, Gates.read(np, weights), x, state)

    def declare(self) -> str:
        sizes = f"{self.input_size}, {self.hidden_size}"
        if self.native:
            bias = ", bias=False" if self.bias == "none" else ""
            return f"nn.{self.rule.kind}Cell({sizes}{bias}{self.rule.options})"
        biases = f", biases={BIASES[self.bias]}" if self.bias != "double" else ""
        biases += self.rule.stepwise_options
        return f"{STEPWISE_CELL.name}({self.rule.step().name}, {self.rule.gates}, {sizes}{biases})"

    def helpers(self) -> tuple[Helper, ...]:
        return () if self.native else (STEPWISE_CELL, self.rule.step())

    def torch(self, t: TorchWriter, x: Expr, *state: Expr) -> Expr:
        given = ", ".join(state)
        return Expr(f"{t.module}({x}, {f'({given})' if self.native and len(state) > 1 else given})")

    def onnx(self, o: OnnxWriter, x: Any, *state: Any) -> tuple[Any, ...]:
        gates = self.rule.onnx_gates(o, self.bias, x)
        return self.rule.onnx(o, self.bias, self.hidden_size, gates, state)


@primitive
class GruCell(Cell):
    """x[B,I], h[B,H] -> h'[B,H]; `reset` and `update` as in `Gru`."""

    reset: Reset = "after"
    update: Update = "keep"

    @property
    def rule(self) -> Rule:
        return GruRule(self.reset, self.update)


@primitive
class LstmCell(Cell):
    """x[B,I], h[B,O], c[B,H] -> h'[B,O], c'[B,H]; the rest as in `Lstm`."""

    forget_bias: float | None = None
    peepholes: bool = False
    projection_size: int | None = None

    def __post_init__(self) -> None:
        check_forget_bias(self.forget_bias, self.bias)

    @property
    def rule(self) -> Rule:
        return LstmRule(self.peepholes, self.projection_size)

    def initial(self, name: str) -> Init:
        return forget_init(name, self.hidden_size, self.forget_bias)

    def declare(self) -> str:
        return with_forget_bias(super().declare(), self.forget_bias)

    def helpers(self) -> tuple[Helper, ...]:
        return super().helpers() + ((WITH_FORGET_BIAS,) if self.forget_bias is not None else ())


@primitive
class RnnCell(Cell):
    """x[B,I], h[B,H] -> h'[B,H]; h' = f(W x + b + U h + c)."""

    activation: Activation = "tanh"

    @property
    def rule(self) -> Rule:
        return RnnRule(self.activation)
