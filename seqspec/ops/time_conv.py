"""Convolution over the real steps of a row: centred, or causal with its last inputs as a state."""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Init, Param, State, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.padding import last_columns

_CONVOLVE = Helper(
    "convolve",
    '''
def convolve(conv, x, mask, left, right, past=None):
    """conv over the real steps of x[B, T, I], behind past[B, left, I] or zeros, before zeros; zeros at padding.

    -> y[B, T, O], and the inputs [B, left, I] that the next chunk goes on from.
    """
    length = x.size(1)
    past = x.new_zeros(x.size(0), left, x.size(2)) if past is None else past
    real = None if mask is None else mask[:, mask.size(1) - length :]
    if real is not None:
        order = (~real).byte().argsort(dim=1, stable=True)
        x = x.gather(1, order[..., None].expand_as(x)).masked_fill(~real.gather(1, order)[..., None], 0)
    x = torch.cat([past, x], 1)
    # one step more than is read, so that there is something to slide over where there is none
    y = conv(F.pad(x, (0, 0, 0, right + 1)).transpose(1, 2)).transpose(1, 2)[:, :length]
    if real is None:
        return y, x[:, length:]
    place = (real.long().cumsum(1) - 1).clamp(min=0)
    y = y.gather(1, place[..., None].expand_as(y)).masked_fill(~real[..., None], 0)
    last = real.sum(1, keepdim=True) + torch.arange(left, device=x.device)
    return y, x.gather(1, last[..., None].expand(-1, -1, x.size(2)))
''',
)


@primitive
class TimeConv(Op):
    """x[B,T,I], mask[B,S]? -> y_t = b + Σ_k W_k x_{t + d·k − left} [B,T,O]

    t counts the real steps of a row, by the last T columns of the mask. Zeros stand before the first and after the last
    step, and y is 0 at padding. If `causal`, left = d (K − 1) and y_t depends on no later step; else left is half of
    it, and K odd. If `stateful`, the last `left` inputs are carried. weight[O, I, K] and bias[O] have torch's layout
    and start uniform in ±1/√(K I).
    """

    inputs: int
    outputs: int
    kernel: int
    dilation: int = 1
    causal: bool = True
    bias: bool = True
    stateful: bool = False

    @property
    def left(self) -> int:
        """The number of earlier steps that it sees."""
        reach = self.dilation * (self.kernel - 1)
        return reach if self.causal else reach // 2

    @property
    def right(self) -> int:
        return 0 if self.causal else self.left

    def infer(self, x: Value, mask: Value | None = None) -> tuple[Type, ...]:
        if len(x.shape) != 3 or x.shape[2] != self.inputs:
            raise ShapeError(f"a convolution of {self.inputs} channels is given {show(x.shape)}")
        if self.stateful and not self.causal:
            raise ShapeError("a convolution that sees what follows cannot go on from a past")
        y = Type((*x.shape[:2], self.outputs), x.dtype)
        return (y, *(Type(state.shape, state.dtype) for state in self.states(x)))

    def params(self) -> tuple[Param, ...]:
        init = Init("uniform", (1 / sqrt(self.inputs * self.kernel),))
        weight = Param("weight", (self.outputs, self.inputs, self.kernel), init=init)
        return (weight, Param("bias", (self.outputs,), init=init)) if self.bias else (weight,)

    def states(self, x: Value, mask: Value | None = None) -> tuple[State, ...]:
        return (State("tail", (x.shape[0], self.left, self.inputs), 1, x.dtype),) if self.stateful else ()

    def flops(self, x: Value, mask: Value | None = None) -> Size:
        return 2 * x.shape[0] * x.shape[1] * self.outputs * self.inputs * self.kernel

    def reference(
        self, np: Any, weights: Weights, x: Array, mask: Array | None = None, past: Array | None = None
    ) -> tuple[Array, ...]:
        batch, time, _ = x.shape
        y = np.zeros((batch, time, self.outputs), x.dtype)
        tail = np.zeros((batch, self.left, self.inputs), x.dtype) if past is None else past.copy()
        for row in range(batch):
            real = [t for t in range(time) if mask is None or mask[row, t - time]]
            steps = np.concatenate([tail[row], x[row, real], np.zeros((self.right, self.inputs), x.dtype)])
            for n, t in enumerate(real):
                for k in range(self.kernel):
                    y[row, t] += weights["weight"][:, :, k] @ steps[n + self.dilation * k]
                y[row, t] += weights["bias"] if self.bias else 0
            tail[row] = steps[len(real) : len(real) + self.left]
        return (y, tail) if self.stateful else (y,)

    def declare(self) -> str:
        more = [f"dilation={self.dilation}"] if self.dilation > 1 else []
        more += [] if self.bias else ["bias=False"]
        return f"nn.Conv1d({', '.join([str(self.inputs), str(self.outputs), str(self.kernel), *more])})"

    def torch(self, t: TorchWriter, x: Expr, mask: Expr | None = None, past: Expr | None = None) -> Expr:
        arguments = f"{t.module}, {x}, {mask}, {self.left}, {self.right}{f', {past}' if past else ''}"
        return Expr(f"{t.use(_CONVOLVE)}({arguments}){'' if self.stateful else '[0]'}")

    def onnx(self, o: OnnxWriter, x: Any, mask: Any | None = None, past: Any | None = None) -> tuple[Any, ...]:
        length, rows = o.size(x, 1), None
        if mask is not None:
            rows = _rows(o, x, mask)
            x = o.Where(rows.front, o.GatherND(x, rows.order, batch_dims=1), o.scalar(0.0))
        x = o.Pad(x, o.ints(0, self.left, 0, 0, 0, 0)) if past is None else o.Concat(past, x, axis=1)
        weights = [o.param("weight"), *([o.param("bias")] if self.bias else [])]
        # one step more than is read, as in PyTorch
        wide = o.Transpose(o.Pad(x, o.ints(0, 0, 0, 0, self.right + 1, 0)), perm=[0, 2, 1])
        y = o.Conv(wide, *weights, kernel_shape=[self.kernel], dilations=[self.dilation])
        y = o.Slice(o.Transpose(y, perm=[0, 2, 1]), o.ints(0), length, o.ints(1))
        if rows is not None:
            y = o.Where(rows.real, o.GatherND(y, rows.place, batch_dims=1), o.scalar(0.0))
        if not self.stateful:
            return (y,)
        if rows is None:
            return y, o.Slice(x, length, o.Add(length, o.ints(self.left)), o.ints(1))
        last = o.Add(rows.lengths, o.const(range(self.left), "int64"))
        return y, o.GatherND(x, o.Unsqueeze(last, o.ints(2)), batch_dims=1)


class _Rows(NamedTuple):
    """real[B,T,1]; lengths[B,1]; each step's place in the compacted row [B,T,1]; the inverse order; front[B,T,1]."""

    real: Any
    lengths: Any
    place: Any
    order: Any
    front: Any


def _rows(o: OnnxWriter, x: Any, mask: Any) -> _Rows:
    real = last_columns(o, mask, x)
    flags, zero, one = o.cast(real, "int64"), o.scalar(0, "int64"), o.scalar(1, "int64")
    seen, lengths = o.CumSum(flags, one), o.ReduceSum(flags, o.ints(1), keepdims=1)
    t = o.Range(zero, o.Squeeze(o.size(x, 1), o.ints(0)), one)
    place = o.Where(real, o.Sub(seen, one), o.Add(lengths, o.Sub(t, seen)))
    order = o.ScatterElements(place, place, o.Expand(t, o.Shape(place)), axis=1)
    front = o.Less(o.Expand(t, o.Shape(place)), lengths)
    real, place, order, front = (o.Unsqueeze(each, o.ints(2)) for each in (real, place, order, front))
    return _Rows(real, lengths, place, order, front)
