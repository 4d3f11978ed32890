"""What `Gru`, `Lstm` and `Rnn` share: stacked and bidirectional layers over padded sequences, states batch first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple, TypeVar

from seqspec.graph.dims import Shape, Size, show
from seqspec.graph.ir import Init, Param, State, Value
from seqspec.ops import recurrent_onnx, recurrent_scan
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.recurrent_rule import (
    BIASES,
    Bias,
    Gates,
    Rule,
    parameter_shapes,
    step_flops,
    step_products,
    uniform,
)
from seqspec.ops.recurrent_text import RAGGED, RECURRENT, STEPWISE_LAYERS

Choice = TypeVar("Choice")


class Direction(NamedTuple):
    """One direction of one layer: its index among all, the suffix of its parameters, the width that it reads."""

    number: int
    suffix: str
    input_size: int
    backward: bool


@primitive
class Recurrent(Op):
    """x[B,T,I], mask[B,S]?, h0[B,L·D,O]? (c0[B,L·D,H]?) -> y[B,T,D·O], h[B,L·D,O] (c[B,L·D,H])

    True in the mask is real; only its last T columns matter. Padding may be anywhere: it is skipped, its outputs are
    zeros, the final state is that after the last real step (backward: after the first), and a row without real steps
    keeps its initial state. States are batch first, layer by layer, forward before backward. A past wins over h0, which
    wins over zeros. `dropout` acts between layers. Parameters have torch's names and layouts. O is H, unless an LSTM
    projects its output.
    """

    input_size: int
    hidden_size: int
    num_layers: int = 1
    bidirectional: bool = False
    bias: Bias = "double"
    dropout: float = 0.0
    stateful: bool = False

    def __post_init__(self) -> None:
        if self.stateful and self.bidirectional:
            raise ValueError("a bidirectional layer has no state to carry")

    @property
    @abstractmethod
    def rule(self) -> Rule:
        """The equation of a step."""

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of each state; the first is also the output width of a direction."""
        return self.rule.widths(self.hidden_size)

    @property
    def native(self) -> bool:
        """Whether torch has a module of this form; otherwise the emitted file steps through time."""
        return self.rule.native and self.bias != "single"

    def infer(self, x: Value, mask: Value | None = None, *initial: Value | None) -> tuple[Type, ...]:
        if len(x.shape) != 3 or x.shape[-1] != self.input_size:
            raise ShapeError(f"a recurrent layer of input size {self.input_size} is given {show(x.shape)}")
        if mask is not None and (len(mask.shape) != 2 or mask.shape[0] != x.shape[0] or mask.dtype != "bool"):
            raise ShapeError(f"a mask {mask.dtype}{show(mask.shape)} does not fit {show(x.shape)}")
        states = self._state_shapes(x)
        for value, state in zip(initial, states, strict=False):
            if value is not None and value.shape != state:
                raise ShapeError(f"an initial state is {show(state)}, not {show(value.shape)}")
        y = (*x.shape[:2], self.directions * self.widths[0])
        return (Type(y), *map(Type, states))

    def params(self) -> tuple[Param, ...]:
        return tuple(p for layer in self.layers() for d in layer for p in self._direction_params(d))

    def initial(self, name: str) -> Init:
        """The initialisation of the parameter of this name, without its suffix."""
        return uniform(self.hidden_size)

    def states(self, x: Value, *_: Value | None) -> tuple[State, ...]:
        if not self.stateful:
            return ()
        named = zip(self.rule.carried, self._state_shapes(x), strict=True)
        return tuple(State(name, shape, output=k) for k, (name, shape) in enumerate(named, 1))

    def flops(self, x: Value, *_: Value | None) -> Size:
        """The matrices of every layer, direction and step, padding included; gates and biases count nothing."""
        each = sum(step_flops(self.rule, d.input_size, self.hidden_size) for layer in self.layers() for d in layer)
        return prod(x.shape[:2]) * each

    def backward(self, takes: Sequence[bool], x: Value, *_: Value | None) -> Size:
        """The matrices again for weights, states and, where one is wanted, x; zeros at the start want none."""
        batch, time = x.shape[:2]
        starts = time if any(takes[1:]) or not time else time - 1
        total: Size = 0
        for number, layer in enumerate(self.layers()):
            for d in layer:
                of_x, of_h, more = step_products(self.rule, d.input_size, self.hidden_size)
                total += time * (of_x * (1 + (number > 0 or takes[0])) + of_h + 2 * more) + starts * of_h
        return batch * total

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        """x; and at every step of a layer and direction its gates, and its states behind it."""
        x = inputs[0]
        each = self.rule.gates * self.hidden_size + sum(self.widths)
        yield from (x, Value("", (*x.shape[:2], self.num_layers * self.directions * each), x.dtype))

    def reference(self, np: Any, weights: Weights, *inputs: Array | None) -> tuple[Array, ...]:
        x, mask, given, pasts = self._arguments(inputs)
        batch, time, _ = x.shape
        zeros = [np.zeros((batch, self.num_layers * self.directions, width), x.dtype) for width in self.widths]
        states = [np.copy(_first(*choices)) for choices in zip(pasts, given, zeros, strict=True)]
        y = np.zeros((batch, time, self.directions * self.widths[0]), x.dtype)
        for row in range(batch):
            real = [t for t in range(time) if mask is None or mask[row, t - time]]
            sequence = x[row, real]
            for layer in self.layers():
                outputs = [self._reference_direction(np, weights, d, sequence, [s[row] for s in states]) for d in layer]
                sequence = np.concatenate(outputs, -1)
            y[row, real] = sequence
        return (y, *states)

    def _reference_direction(self, np: Any, weights: Weights, d: Direction, x: Array, states: Sequence[Array]) -> Array:
        """x[N,I] -> y[N,O] over the real steps; writes the final state into `states`, [L·D,O] and [L·D,H]."""
        gates = Gates.read(np, weights, d.suffix)
        state = tuple(s[d.number] for s in states)
        y = np.zeros((len(x), self.widths[0]), x.dtype)
        for t in reversed(range(len(x))) if d.backward else range(len(x)):
            state = self.rule.reference(np, gates, x[t], state)
            y[t] = state[0]
        for all_states, last in zip(states, state, strict=True):
            all_states[d.number] = last
        return y

    def declare(self) -> str:
        more = f", num_layers={self.num_layers}" if self.num_layers > 1 else ""
        tail = ", bidirectional=True" if self.bidirectional else ""
        tail += f", dropout={self.dropout!r}" if self.dropout else ""
        if self.native:
            more += self.rule.options + (", bias=False" if self.bias == "none" else "") + ", batch_first=True"
            return f"nn.{self.rule.kind}({self.input_size}, {self.hidden_size}{more}{tail})"
        more += f", biases={BIASES[self.bias]}" if self.bias != "double" else ""
        tail += self.rule.stepwise_options
        first = f"{self.rule.step().name}, {self.rule.gates}"
        return f"{STEPWISE_LAYERS.name}({first}, {self.input_size}, {self.hidden_size}{more}{tail})"

    def helpers(self) -> tuple[Helper, ...]:
        return () if self.native else (STEPWISE_LAYERS, self.rule.step())

    def torch(self, t: TorchWriter, *inputs: Expr | None) -> Expr:
        x, mask, given, pasts = self._arguments(inputs)
        starts = [_start(past, start) for past, start in zip(pasts, given, strict=True)]
        if not self.native:
            arguments = [x, mask, *starts]
        elif mask is None:
            arguments = [t.module, x, *starts]
        else:
            arguments = [t.module, t.use(self.rule.step()), x, mask, *starts]
        while arguments[-1] is None:
            arguments.pop()
        function = t.module if not self.native else t.use(RECURRENT if mask is None else RAGGED)
        return Expr(f"{function}({', '.join(map(str, arguments))})")

    def onnx(self, o: OnnxWriter, *inputs: Any) -> tuple[Any, ...]:
        x, mask, starts = self.onnx_arguments(inputs)
        if not self.rule.in_onnx:
            return recurrent_scan.padded(o, self, x, mask, starts)
        return recurrent_onnx.run(o, self, x, mask, starts)

    def onnx_arguments(self, inputs: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
        """x, mask and what each state starts from, None for those left out."""
        x, mask, given, pasts = self._arguments(inputs)
        return x, mask, [_first(past, start, None) for past, start in zip(pasts, given, strict=True)]

    def layers(self) -> Iterator[tuple[Direction, ...]]:
        """The directions of every layer, in the order of the state."""
        for layer in range(self.num_layers):
            width = self.directions * self.widths[0] if layer else self.input_size
            yield tuple(
                Direction(layer * self.directions + k, f"_l{layer}{'_reverse' if k else ''}", width, bool(k))
                for k in range(self.directions)
            )

    def _arguments(self, inputs: Sequence[Any]) -> tuple[Any, Any, list[Any], list[Any]]:
        """x, mask, initial states, pasts; None for those left out."""
        count = len(self.rule.carried)
        split = len(inputs) - (count if self.stateful else 0)
        x, mask, *given = tuple(inputs[:split]) + (None,) * (2 + count - split)
        pasts = list(inputs[split:]) or [None] * count
        return x, mask, given, pasts

    def _state_shapes(self, x: Value) -> list[Shape]:
        return [(x.shape[0], self.num_layers * self.directions, width) for width in self.widths]

    def _direction_params(self, d: Direction) -> tuple[Param, ...]:
        shapes = parameter_shapes(self.rule, d.input_size, self.hidden_size, self.bias)
        return tuple(Param(name + d.suffix, shape, init=self.initial(name)) for name, shape in shapes.items())


def _first(*choices: Choice | None) -> Choice | None:
    """The first that is not None."""
    return next((c for c in choices if c is not None), None)


def _start(past: Expr | None, initial: Expr | None) -> Expr | None:
    """The past, or if it is None the initial value, which is evaluated only then."""
    if past is None or initial is None:
        return _first(past, initial)
    return Expr.infix(f"{initial} if {past} is None else {past}")
