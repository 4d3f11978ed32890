"""Recurrent layers in ONNX as a Scan over time: one product and one activation in a step, all else outside of it.

The steps are rows of one matrix, so that W x + b, which does not depend on the state, is one product for all of them.
How they lie there, a `Rows`, is `Whole` if nothing is padded, and else `Padded` or `Packed`. Models in 16 bits compute
in float32 here, as they do in onnxruntime's ops of recurrent layers on a CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from seqspec.graph.dims import BATCH, Shape, dim
from seqspec.graph.ir import Value
from seqspec.ops import recurrent_onnx
from seqspec.ops.base import Array, OnnxWriter
from seqspec.ops.padding import last_columns
from seqspec.ops.recurrent_onnx import joined

if TYPE_CHECKING:
    from seqspec.ops.recurrent import Recurrent

Step = Callable[..., tuple[Any, ...]]
"""gates[n,G·H], states[n,·]… -> the new states"""


def padded(o: OnnxWriter, op: Recurrent, x: Any, mask: Any, starts: Sequence[Any]) -> tuple[Any, ...]:
    """x[B,T,I], mask[B,S] or None, starts[B,L·D,·] or None -> y[B,T,D·O], finals[B,L·D,·]"""
    return _layers(Padded(o, op, x, _real(o, x, mask)), starts)


def packed(o: OnnxWriter, op: Recurrent, x: Any, mask: Any, starts: Sequence[Any]) -> tuple[Any, ...]:
    """As `padded`, but what is padding at run time is not computed; if nothing is, ONNX's op may be faster."""
    real, sizes = _real(o, x, mask), (o.size(x, 0), o.size(x, 1))
    steps = o.Max(o.Mul(*sizes), o.ints(1))  # T = 0 is not whole
    whole = o.Equal(o.ReduceSum(o.cast(real, "int64"), keepdims=0), o.Squeeze(steps, o.ints(0)))

    def in_one() -> tuple[Any, ...]:
        if not op.rule.fast_in_onnx:
            return _layers(Whole(o, op, x), starts)
        x32, *starts32 = (v if v is None else o.cast(v, "float32") for v in (x, *starts))
        return tuple(o.cast(v, "float") for v in recurrent_onnx.whole(_Single(o), op, x32, starts32))

    # with the parameters: onnxruntime packs what a loop multiplies by if that is a constant of the graph around it
    local = [x, real, *sizes, *starts, *(o.param(p.name) for p in op.params())]
    return tuple(o.either(whole, local, in_one, lambda: _layers(Packed(o, op, x, real), starts)))


def _real(o: OnnxWriter, x: Any, mask: Any) -> Any:
    """bool[B,T]"""
    if mask is not None:
        return last_columns(o, mask, x)
    return o.Expand(o.scalar(1, "bool"), o.Concat(o.size(x, 0), o.size(x, 1), axis=0))


def _layers(rows: Rows, starts: Sequence[Any]) -> tuple[Any, ...]:
    """y[B,T,D·O], finals[B,L·D,·]"""
    o, op = rows.o, rows.op
    y = o.cast(rows.flat(), "float32")
    begun = [None if start is None else rows.ordered(o.cast(start, "float32")) for start in starts]
    finals: list[list[Any]] = [[] for _ in starts]
    for layer in op.layers():
        outputs = []
        for d in layer:
            under = _Single(o, d.suffix)
            gates = op.rule.onnx_gates(under, op.bias, y)
            states = [rows.start(start, d.number, width) for start, width in zip(begun, op.widths, strict=True)]
            *last, made = rows.scan(gates, states, partial(_step, under, op), d.backward)
            outputs.append(made)
            for kept, state in zip(finals, last, strict=True):
                kept.append(o.Unsqueeze(state, o.ints(1)))
        y = joined(o, outputs, -1)
    # cast before it is transposed: onnxruntime's CUDA provider cannot fuse both with a product behind them
    ends = (o.cast(rows.as_given(joined(o, kept, 1)), "float") for kept in finals)
    return (rows.back(o.cast(y, "float")), *ends)


def _step(o: OnnxWriter, op: Recurrent, gates: Any, *state: Any) -> tuple[Any, ...]:
    """gates[n,G·H], state[n,·]… -> the next state"""
    return op.rule.onnx(o, op.bias, op.hidden_size, gates, state)


class _Single:
    """A writer of float32 whatever the model computes in, which finds the parameters of a direction without suffix."""

    def __init__(self, o: OnnxWriter, suffix: str = "") -> None:
        self._o, self._suffix = o, suffix

    def __getattr__(self, name: str) -> Any:
        return getattr(self._o, name)

    def param(self, leaf: str) -> Any:
        return self._o.cast(self._o.param(leaf + self._suffix), "float32")

    def derived(self, tag: str, shape: Shape, make: Callable[..., Array], *leaves: str, dtype: str = "float32") -> Any:
        suffixed = (leaf + self._suffix for leaf in leaves)
        return self._o.cast(self._o.derived(tag + self._suffix, shape, make, *suffixed), dtype)

    def scalar(self, value: float, dtype: str = "float32") -> Any:
        return self._o.const(value, dtype)


class Rows(ABC):
    """How the steps of x[B,T,I] are rows of a matrix [N, ·], and how a Scan goes over them."""

    def __init__(self, o: OnnxWriter, op: Recurrent, x: Any) -> None:
        self.o, self.op, self.x = o, op, x
        self.batch, self.time = o.size(x, 0), o.size(x, 1)
        self.zero = o.const(0.0, "float32")
        self.width = op.widths[0]
        self.states = [Value(n, (_BATCH, w), "float32") for n, w in zip(op.rule.carried, op.widths, strict=True)]

    @abstractmethod
    def flat(self) -> Any:
        """x[N,I]"""

    @abstractmethod
    def scan(self, gates: Any, states: Sequence[Any], step: Step, backward: bool) -> list[Any]:
        """gates[N,G·H], states[B,·] -> the last states, y[N,O]"""

    @abstractmethod
    def back(self, y: Any) -> Any:
        """y[N,D·O] -> [B,T,D·O], zeros at padding"""

    def ordered(self, state: Any) -> Any:
        """state[B,…] in the order in which a Scan has the batch."""
        return state

    def as_given(self, state: Any) -> Any:
        """The inverse of `ordered`."""
        return state

    def start(self, start: Any, number: int, width: int) -> Any:
        """start[B,L·D,·] of one direction, or zeros: [B,·]"""
        if start is None:
            return self.o.Expand(self.zero, self.shape(self.batch, width))
        return self.o.Gather(start, self.o.scalar(number, "int64"), axis=1)

    def shape(self, *sizes: Any) -> Any:
        """A shape of sizes that are known or values."""
        return self.o.Concat(*(self.o.ints(s) if isinstance(s, int) else s for s in sizes), axis=0)


class Whole(Rows):
    """Every step of every row, time by time; there is at least one, and none is padding."""

    def flat(self) -> Any:
        return self.o.Reshape(self.o.Transpose(self.x, perm=[1, 0, 2]), self.o.ints(-1, self.op.input_size))

    def scan(self, gates: Any, states: Sequence[Any], step: Step, backward: bool) -> list[Any]:
        def write(*inputs: Any) -> tuple[Any, ...]:
            *state, now = inputs
            new = step(now, *state)
            return (*new, new[0])

        *last, y = self.o.steps(write, states, [self.by_time(gates)], [*self.states, self.gates], backward)
        return [*last, self.o.Reshape(y, self.o.ints(-1, self.width))]

    def back(self, y: Any) -> Any:
        return self.o.Transpose(self.by_time(y, self.op.directions * self.width), perm=[1, 0, 2])

    @property
    def gates(self) -> Value:
        """One step of them."""
        return Value("gates", (_BATCH, self.op.rule.gates * self.op.hidden_size), "float32")

    def by_time(self, rows: Any, width: int = 0) -> Any:
        """[T·B,·] -> [T,B,·]; gates if no width is given"""
        return self.o.Reshape(rows, self.shape(self.time, self.batch, width or self.gates.shape[1]))


class Padded(Whole):
    """Every step of every row; a state stands still at padding, wherever that is."""

    def __init__(self, o: OnnxWriter, op: Recurrent, x: Any, real: Any) -> None:
        super().__init__(o, op, x)
        self.real = o.Unsqueeze(o.Transpose(real, perm=[1, 0]), o.ints(2))  # [T,B,1]
        self.missing = o.Max(o.Sub(o.ints(1), self.time), o.ints(0))

    def scan(self, gates: Any, states: Sequence[Any], step: Step, backward: bool) -> list[Any]:
        o = self.o

        def write(*inputs: Any) -> tuple[Any, ...]:
            *state, now, real = inputs
            kept = [o.Where(real, new, old) for new, old in zip(step(now, *state), state, strict=True)]
            return (*kept, kept[0])

        moving = [self._some_step(self.by_time(gates), self.zero), self._some_step(self.real, o.scalar(0, "bool"))]
        inputs = [*self.states, self.gates, Value("real", (_BATCH, 1), "bool")]
        *last, y = o.steps(write, states, moving, inputs, backward)
        return [*last, o.Reshape(o.Slice(y, o.ints(0), self.time, o.ints(0)), o.ints(-1, self.width))]

    def back(self, y: Any) -> Any:
        return self.o.Where(self.o.Transpose(self.real, perm=[1, 0, 2]), super().back(y), self.o.scalar(0.0))

    def _some_step(self, x: Any, nothing: Any) -> Any:
        """x[T,B,·], or a step of padding if T = 0: onnxruntime's Scan needs one."""
        shape = self.o.Concat(self.missing, self.o.Shape(x, start=1), axis=0)
        return self.o.Concat(x, self.o.Expand(nothing, shape), axis=0)


class Packed(Rows):
    """Real steps alone, as torch packs them: time by time, and of each time the longest rows first.

    Those that still run are in front, and a step computes no others. That costs a few small nodes in every step.
    """

    def __init__(self, o: OnnxWriter, op: Recurrent, x: Any, real: Any) -> None:
        super().__init__(o, op, x)
        zero, one = o.scalar(0, "int64"), o.scalar(1, "int64")
        lengths = o.ReduceSum(o.cast(real, "int64"), o.ints(1), keepdims=0)
        longest, self.order = o.many("TopK", 2, lengths, self.batch)
        self.places = o.many("TopK", 2, self.order, self.batch, largest=0)[1]
        steps = o.Max(o.Slice(longest, o.ints(0), o.ints(1)), o.ints(1))  # onnxruntime's Scan needs one
        running = o.Less(o.Unsqueeze(o.Range(zero, o.Squeeze(steps, o.ints(0)), one), o.ints(1)), longest)
        count = o.ReduceSum(o.cast(running, "int64"), o.ints(1))
        end = o.CumSum(count, zero)
        self.parts = [o.Sub(end, count), end, o.Concat(count, o.Sub(self.batch, count), axis=1)]
        split = o.many("Split", 2, o.NonZero(running), axis=0, num_outputs=2)
        time, row = (o.Squeeze(v, o.ints(0)) for v in split)
        first = o.Gather(o.CumSum(lengths, zero, exclusive=1), self.order)
        steps_of_x = o.Squeeze(o.NonZero(o.Reshape(real, o.ints(-1))), o.ints(0))
        self.in_x = o.Gather(steps_of_x, o.Add(o.Gather(first, row), time))  # of each row of the matrix, in [B·T]
        self.in_scan = o.Add(o.Mul(time, self.batch), row)  # and in what a Scan puts out, [steps·B]

    def flat(self) -> Any:
        return self.o.Gather(self.o.Reshape(self.x, self.o.ints(-1, self.op.input_size)), self.in_x)

    def scan(self, gates: Any, states: Sequence[Any], step: Step, backward: bool) -> list[Any]:
        o = self.o

        def write(*inputs: Any) -> tuple[Any, ...]:
            *state, start, end, counts = inputs
            halves = [o.many("Split", 2, s, counts, axis=0) for s in state]
            new = step(o.Slice(gates, start, end, o.ints(0)), *(running for running, _ in halves))
            kept = [o.Concat(n, ended, axis=0) for n, (_, ended) in zip(new, halves, strict=True)]
            return (*kept, kept[0])

        *last, y = o.steps(write, states, self.parts, [*self.states, *_PARTS], backward)
        return [*last, o.Gather(o.Reshape(y, o.ints(-1, self.width)), self.in_scan)]

    def back(self, y: Any) -> Any:
        o, width = self.o, self.op.directions * self.width
        nothing = o.Expand(o.scalar(0.0), self.shape(o.Mul(self.batch, self.time), width))
        made = o.ScatterND(nothing, o.Unsqueeze(self.in_x, o.ints(1)), y)
        return o.Reshape(made, self.shape(self.batch, self.time, width), allowzero=1)

    def ordered(self, state: Any) -> Any:
        return self.o.Gather(state, self.order, axis=0)

    def as_given(self, state: Any) -> Any:
        return self.o.Gather(state, self.places, axis=0)


_BATCH = dim(BATCH)
_PARTS = [Value("start", (1,), "int64"), Value("end", (1,), "int64"), Value("counts", (2,), "int64")]
