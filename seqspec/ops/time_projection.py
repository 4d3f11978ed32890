"""Keys and values of all tokens summed into a few: low-rank attention, in which n tokens cost n and not n²."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive
from seqspec.ops.positions import WITHIN_TABLE

_TIME = Helper(
    "project_time",
    '''
def project_time(x, weight, positions, mask=None):
    """x[B, G, T, d] -> [B, G, k, d]: the sum over real tokens of weight[k, position] · x."""
    rows = weight.T[within_table(positions, weight.size(1))]
    if mask is not None:
        rows = rows * mask[..., None]
    return rows.transpose(1, 2)[:, None] @ x
''',
    (WITHIN_TABLE,),
)


@primitive
class TimeProjection(Op):
    """x[B,G,T,d], positions[B,T], mask[B,T]? -> Σ_t weight[·, positions_t] x_t [B,G,k,d]; weight[k, max_length].

    Linformer's E and F (Wang et al. 2020), the same for all heads. Padding adds nothing; a position past `max_length`
    is an error.
    """

    max_length: int
    length: int

    def infer(self, x: Value, positions: Value, mask: Value | None) -> tuple[Type, ...]:
        batch, heads, time, width = x.shape
        if positions.shape != (batch, time):
            raise ShapeError(f"positions of {show(x.shape)} are {show((batch, time))}, not {show(positions.shape)}")
        return (Type((batch, heads, self.length, width), x.dtype),)

    def params(self) -> tuple[Param, ...]:
        return (Param("weight", (self.length, self.max_length), init=Init("uniform", (1 / sqrt(self.max_length),))),)

    def flops(self, x: Value, positions: Value, mask: Value | None) -> Size:
        batch, heads, time, width = x.shape
        return 2 * batch * heads * time * self.length * width

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from inputs

    def reference(self, np: Any, weights: Weights, x: Array, positions: Array, mask: Array | None) -> tuple[Array, ...]:
        if positions.size and not (positions.min() >= 0 and positions.max() < self.max_length):
            raise IndexError(f"positions {positions.min()} to {positions.max()}, but max_length is {self.max_length}")
        y = np.zeros((*x.shape[:2], self.length, x.shape[3]), x.dtype)
        for b, t in np.ndindex(x.shape[0], x.shape[2]):
            if mask is None or mask[b, t]:
                y[b] += weights["weight"][:, positions[b, t], None] * x[b, :, t, None]
        return (y,)

    def declare(self) -> str:
        return f"nn.Linear({self.max_length}, {self.length}, bias=False)"

    def torch(self, t: TorchWriter, x: Expr, positions: Expr, mask: Expr | None) -> Expr:
        padded = f", {mask}" if mask else ""
        return Expr(f"{t.use(_TIME)}({x}, {t.module}.weight, {positions}{padded})")

    def onnx(self, o: OnnxWriter, x: Any, positions: Any, mask: Any | None) -> tuple[Any, ...]:
        # Gather reads a negative index from the end: one past the table is refused instead
        within = o.Where(o.Less(positions, o.ints(0)), o.ints(self.max_length), positions)
        rows = o.Gather(o.param("weight"), within, axis=1)  # [k, B, T]
        if mask is not None:
            rows = o.Where(mask, rows, o.scalar(0.0))
        return (o.MatMul(o.Unsqueeze(o.Transpose(rows, perm=[1, 0, 2]), o.ints(1)), x),)
