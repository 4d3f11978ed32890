"""Frames of audio and their masks; and the class token in front of an image's patches."""

from __future__ import annotations

from typing import Any

from seqspec.graph.dims import Size, ceil_div, show
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive

_REAL_FIRST = Helper(
    "real_first",
    '''
def real_first(x, mask):
    """x[B, T, I] with the real frames of each row in front, in their order, and zeros behind them; and that mask."""
    if mask is None:
        return x, None
    order = (~mask).byte().argsort(dim=1, stable=True)
    mask = mask.gather(1, order)
    return x.gather(1, order[..., None].expand_as(x)).masked_fill(~mask[..., None], 0), mask
''',
)


@primitive
class RealFirst(Op):
    """x[B, T, I], mask[B, T]? -> x with each row's real frames first, in order, then zeros; and the mask of that.

    A strided convolution then sees the same frames wherever padding was.
    """

    def infer(self, x: Value, mask: Value) -> tuple[Type, ...]:
        if mask.shape != x.shape[:2]:
            raise ShapeError(f"the mask of {show(x.shape)} is {show(x.shape[:2])}, not {show(mask.shape)}")
        return Type(x.shape, x.dtype), Type(mask.shape, "bool", mask.optional)

    def flops(self, x: Value, mask: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array, mask: Array | None) -> tuple[Array | None, ...]:
        if mask is None:
            return x, None
        moved, real = np.zeros_like(x), np.zeros_like(mask)
        for row, kept in enumerate(mask):
            frames = x[row, kept]
            moved[row, : len(frames)], real[row, : len(frames)] = frames, True
        return moved, real

    def torch(self, t: TorchWriter, x: Expr, mask: Expr) -> Expr:
        return Expr(f"{t.use(_REAL_FIRST)}({x}, {mask})")

    def onnx(self, o: OnnxWriter, x: Any, mask: Any) -> tuple[Any, ...]:
        # TopK keeps the order of equal values
        real, order = o.many("TopK", 2, o.cast(mask, "int64"), o.size(mask, 1), axis=1)
        moved, real = o.GatherND(x, o.Unsqueeze(order, o.ints(2)), batch_dims=1), o.cast(real, "bool")
        return o.Where(o.Unsqueeze(real, o.ints(2)), moved, o.scalar(0.0)), real


@primitive
class Subsample(Op):
    """mask[B, T]? -> every `step`-th column from the first [B, ⌈T/step⌉].

    If the real frames come first, this is the mask of the output of a convolution with that stride.
    """

    step: int

    def infer(self, mask: Value) -> tuple[Type, ...]:
        batch, length = mask.shape
        return (Type((batch, ceil_div(length, self.step)), mask.dtype, mask.optional),)

    def flops(self, mask: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, mask: Array | None) -> tuple[Array | None, ...]:
        return (None if mask is None else mask[:, :: self.step],)

    def torch(self, t: TorchWriter, mask: Expr) -> Expr:
        return Expr.infix(f"None if {mask} is None else {mask.tight}[:, ::{self.step}]")

    def onnx(self, o: OnnxWriter, mask: Any) -> tuple[Any, ...]:
        return (o.Slice(mask, o.ints(0), o.size(mask, 1), o.ints(1), o.ints(self.step)),)


@primitive
class ChannelsLast(Op):
    """x[B, C, T] -> [B, T, C]"""

    view = True

    def infer(self, x: Value) -> tuple[Type, ...]:
        if len(x.shape) != 3:
            raise ShapeError(f"channels of [B, C, T] are put last, not of {show(x.shape)}")
        batch, channels, time = x.shape
        return (Type((batch, time, channels), x.dtype),)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x.swapaxes(1, 2),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{x.tight}.transpose(1, 2)")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (o.Transpose(x, perm=[0, 2, 1]),)


@primitive
class ClassToken(Op):
    """x[B, N, D] -> [token; x] [B, 1 + N, D]: a learned vector before every row.

    class_token[D] starts normal with standard deviation 0.02.
    """

    width: int

    def infer(self, x: Value) -> tuple[Type, ...]:
        if x.shape[-1] != self.width:
            raise ShapeError(f"a token of width {self.width} cannot stand before {show(x.shape)}")
        return (Type((x.shape[0], 1 + x.shape[1], self.width), x.dtype),)

    def params(self) -> tuple[Param, ...]:
        return (Param("class_token", (self.width,), init=Init("normal", (0.02,))),)

    def flops(self, x: Value) -> Size:
        return 0

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        token = np.broadcast_to(weights["class_token"], (len(x), 1, self.width))
        return (np.concatenate([token, x], 1),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"torch.cat([{t.param('class_token')}.expand({x.tight}.size(0), 1, -1), {x}], 1)")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        shape = o.Concat(o.size(x, 0), o.ints(1, self.width), axis=0)
        return (o.Concat(o.Expand(o.param("class_token"), shape), x, axis=1),)
