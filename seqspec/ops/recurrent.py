"""What `Gru`, `Lstm` and `Rnn` share: stacked, bidirectional, ragged recurrent layers with their state batch first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt
from typing import ClassVar, Literal, NamedTuple

from seqspec.graph.dims import Shape, Size, show
from seqspec.graph.ir import Init, Param, State, Value
from seqspec.ops.base import Op, ShapeError, Type

Bias = Literal["double", "single", "none"]
"""double: torch's bias_ih and bias_hh; single: bias_ih alone."""

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
COUNTS: dict[Bias, int] = {"double": 4, "single": 3, "none": 2}  # how many of NAMES there are


class Direction(NamedTuple):
    """One direction of one layer: its number among all, the suffix of its parameters, what it reads."""

    number: int
    suffix: str
    input_size: int
    backward: bool


@dataclass(frozen=True)
class Recurrent(Op):
    """x[B,T,I], mask[B,S]?, h0[B,L·D,H]? (c0) -> y[B,T,D·H], h[B,L·D,H] (c)

    True in the mask is real; one longer than x counts by its last T columns. Padding may lie anywhere: it is skipped,
    its outputs are zeros, the final state is the one after the last real step (backward: after the first), and a row
    with no real step keeps its initial state. States are batch first, layer by layer, forward before backward. A past
    wins over h0, which wins over zeros. `dropout` acts between layers; parameters have torch's names and layouts.
    """

    input_size: int
    hidden_size: int
    num_layers: int = 1
    bidirectional: bool = False
    bias: Bias = "double"
    dropout: float = 0.0
    stateful: bool = False

    gates: ClassVar[int]  # blocks of rows in each weight
    carried: ClassVar[tuple[str, ...]] = ("h",)

    def __post_init__(self) -> None:
        if self.stateful and self.bidirectional:
            raise ValueError("a bidirectional layer has no state to carry")

    def infer(self, x: Value, mask: Value | None = None, *initial: Value | None) -> tuple[Type, ...]:
        if len(x.shape) != 3 or x.shape[-1] != self.input_size:
            raise ShapeError(f"a recurrent layer of input size {self.input_size} is given {show(x.shape)}")
        if mask is not None and (len(mask.shape) != 2 or mask.shape[0] != x.shape[0]):
            raise ShapeError(f"a mask {show(mask.shape)} does not fit {show(x.shape)}")
        state = self._state_shape(x)
        for value in initial:
            if value is not None and value.shape != state:
                raise ShapeError(f"an initial state is {show(state)}, not {show(value.shape)}")
        y = (*x.shape[:2], self.directions * self.hidden_size)
        return (Type(y), *(Type(state) for _ in self.carried))

    def params(self) -> tuple[Param, ...]:
        return tuple(p for d in self.parts() for p in self._direction_params(d))

    def states(self, x: Value, *_: Value | None) -> tuple[State, ...]:
        if not self.stateful:
            return ()
        return tuple(State(name, self._state_shape(x), output=k) for k, name in enumerate(self.carried, 1))

    def flops(self, x: Value, *_: Value | None) -> Size:
        """The two matrices of every layer, direction and step, padding included; gates and biases count nothing."""
        rows = self.gates * self.hidden_size
        columns = sum(d.input_size + self.hidden_size for d in self.parts())
        return 2 * prod(x.shape[:2]) * rows * columns

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def parts(self) -> Iterator[Direction]:
        """Every direction of every layer, in the order of the state."""
        for layer in range(self.num_layers):
            width = self.directions * self.hidden_size if layer else self.input_size
            for backward in range(self.directions):
                suffix = f"_l{layer}{'_reverse' if backward else ''}"
                yield Direction(layer * self.directions + backward, suffix, width, bool(backward))

    def _state_shape(self, x: Value) -> Shape:
        return (x.shape[0], self.num_layers * self.directions, self.hidden_size)

    def _direction_params(self, d: Direction) -> tuple[Param, ...]:
        shapes = parameter_shapes(self.gates, d.input_size, self.hidden_size, self.bias)
        return tuple(Param(name + d.suffix, shape, init=self.initial(name)) for name, shape in shapes.items())

    def initial(self, name: str) -> Init:
        """How the parameter of this name (without its suffix) starts."""
        return uniform(self.hidden_size)


def parameter_shapes(gates: int, input_size: int, hidden_size: int, bias: Bias) -> dict[str, Shape]:
    """weight_ih[G·H,I], weight_hh[G·H,H], bias_ih[G·H], bias_hh[G·H], as many as there are."""
    rows = gates * hidden_size
    shapes: tuple[Shape, ...] = ((rows, input_size), (rows, hidden_size), (rows,), (rows,))
    return dict(zip(NAMES[: COUNTS[bias]], shapes, strict=False))


def uniform(hidden_size: int) -> Init:
    """torch's start of everything recurrent: uniform in ±1/√H."""
    return Init("uniform", (1 / sqrt(hidden_size),))
