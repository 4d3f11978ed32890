"""A cell in two parts: what its first inputs add to the gates, for all steps at once, and the rest of a step."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Param, Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.cells import Cell
from seqspec.ops.recurrent_rule import Gates, step_flops, summed


@primitive
class InputGates(Op):
    """x[..., I], weight[R, I + J], bias[R]… -> W₁ x + b + … [..., R], W = [W₁ W₂], where a cell owns the weights."""

    positionwise: ClassVar[bool] = True

    def infer(self, x: Value, weight: Value, *biases: Value) -> tuple[Type, ...]:
        if weight.shape[1] < x.shape[-1]:  # type: ignore[operator]
            raise ShapeError(f"a cell with weights {show(weight.shape)} cannot read {show(x.shape)}")
        return (Type((*x.shape[:-1], weight.shape[0])),)

    def flops(self, x: Value, weight: Value, *biases: Value) -> Size:
        return 2 * prod(x.shape) * weight.shape[0]

    def reference(self, np: Any, weights: Weights, x: Array, weight: Array, *biases: Array) -> tuple[Array, ...]:
        return (sum(biases, x @ weight[:, : x.shape[-1]].T),)

    def torch(self, t: TorchWriter, x: Expr, weight: Expr, *biases: Expr) -> Expr:
        bias = f", {' + '.join(biases)}" if biases else ""
        return Expr(f"F.linear({x}, {weight.tight}[:, :{x.tight}.shape[-1]]{bias})")

    def onnx(self, o: OnnxWriter, x: Any, weight: Any, *biases: Any) -> tuple[Any, ...]:
        # onnxruntime folds what it makes of weights when it loads the file
        first = o.Slice(weight, o.ints(0), o.size(x, -1), o.ints(1))
        gates = o.MatMul(x, o.Transpose(first, perm=[1, 0]))
        return (o.Add(gates, summed(o, biases)) if biases else gates,)


@primitive
class OpenCell(Op):
    """gates[B,G·H], y[B,J]?, h[B,H] (c) -> h' (c'): `cell` of [x; y], where gates are the `InputGates` of x[B,I].

    y is None if x is all that the cell reads.
    """

    cell: Cell
    inputs: int
    """I, of the cell's `input_size`."""

    @property
    def added(self) -> tuple[str, ...]:
        """The biases that are in the gates."""
        return self.cell.rule.input_biases(self.cell.bias)

    @property
    def more(self) -> int:
        """J, the width of y."""
        return self.cell.input_size - self.inputs

    @property
    def rows(self) -> int:
        """G·H"""
        return self.cell.rule.gates * self.cell.hidden_size

    def infer(self, gates: Value, y: Value | None, *state: Value) -> tuple[Type, ...]:
        batch, given = gates.shape[0], (gates.shape, None if y is None else y.shape)
        if given != ((batch, self.rows), (batch, self.more) if self.more else None):
            shapes = " and ".join(show(v.shape) for v in (gates, y) if v is not None)
            raise ShapeError(f"{self.rows} gates and {self.more} more inputs of a cell are given as {shapes}")
        return self.cell.infer(Value("", (batch, self.cell.input_size)), *state)

    def params(self) -> tuple[Param, ...]:
        return self.cell.params()

    def flops(self, gates: Value, *_: Value | None) -> Size:
        return gates.shape[0] * step_flops(self.cell.rule, self.more, self.cell.hidden_size)

    def reference(self, np: Any, weights: Weights, gates: Array, y: Array | None, *state: Array) -> tuple[Array, ...]:
        whole = gates if y is None else gates + y @ weights["weight_ih"][:, self.inputs :].T
        rest = {name: w for name, w in weights.items() if name not in self.added}
        return self.cell.rule.reference(np, Gates.read(np, {**rest, "weight_ih": np.eye(self.rows)}), whole, state)

    def torch(self, t: TorchWriter, gates: Expr, y: Expr | None, *state: Expr) -> Expr:
        owned = {p.name: t.param(p.name) for p in self.params()}
        rest = "" if y is None else f" + F.linear({y}, {owned['weight_ih']}[:, {self.inputs}:])"
        bias = "None" if "bias_hh" in self.added else owned.get("bias_hh", "None")
        more = "".join(f", {owned[name]}" for name in ("weight_ch", "weight_hr") if name in owned)
        step, states = t.use(self.cell.rule.step()), ", ".join(state)
        new = f"{step}({gates.tight}{rest}, ({states},), {owned['weight_hh']}, {bias}{more})"
        return Expr(new if len(state) > 1 else f"{new}[0]")

    def onnx(self, o: OnnxWriter, gates: Any, y: Any, *state: Any) -> tuple[Any, ...]:
        cell = self.cell
        if y is not None:
            behind = o.Slice(o.param("weight_ih"), o.ints(self.inputs), o.ints(cell.input_size), o.ints(1))
            gates = o.Gemm(y, behind, gates, transB=1)
        return cell.rule.onnx(o, cell.bias, cell.hidden_size, gates, state)
