"""Normalisation over the last axis. In half precision the sums are float32, and eps with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive


@primitive
class LayerNorm(Op):
    """x[..., D] -> (x − mean) / √(variance + eps) · weight + bias; the variance is the biased one.

    Without `bias` there is no shift at all, neither in the weights nor in the exported file.
    """

    positionwise = True

    width: int
    eps: float = 1e-5
    bias: bool = True

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (_same(x, self.width),)

    def params(self) -> tuple[Param, ...]:
        weight = Param("weight", (self.width,), init=Init("ones"))
        return (weight, Param("bias", (self.width,), init=Init("zeros"))) if self.bias else (weight,)

    def flops(self, x: Value) -> Size:
        # sum, subtract, square, sum, divide, weight, and the shift
        return (7 if self.bias else 6) * prod(x.shape)

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        x = inputs[0]
        yield from (x, Value("", (*x.shape[:-1], 2), "float32"))  # a mean and a deviation a row

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True)
        y = centred / np.sqrt(variance + self.eps) * weights["weight"]
        return (y + weights["bias"] if self.bias else y,)

    def declare(self) -> str:
        return f"nn.LayerNorm({self.width}, eps={self.eps!r}{'' if self.bias else ', bias=False'})"

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{t.module}({x})")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        scale = (o.param("weight"), o.param("bias")) if self.bias else (o.param("weight"),)
        return (o.LayerNormalization(x, *scale, axis=-1, epsilon=self.eps, stash_type=1),)


@primitive
class RMSNorm(Op):
    """x[..., D] -> x / √(mean(x²) + eps) · weight.

    `weight` is the whole factor; Gemma's 1 + w is `OffsetRMSNorm`. In half precision the result is rounded once, after
    the weight; Llama's own code also rounds before it.
    """

    positionwise = True

    width: int
    eps: float = 1e-6

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (_same(x, self.width),)

    def params(self) -> tuple[Param, ...]:
        return (Param("weight", (self.width,), init=Init("ones")),)

    def flops(self, x: Value) -> Size:
        return 4 * prod(x.shape)  # square, sum, divide, weight

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        x = inputs[0]
        yield from (x, Value("", (*x.shape[:-1], 1), "float32"))  # a mean square a row

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x / np.sqrt((x**2).mean(-1, keepdims=True) + self.eps) * weights["weight"],)

    def declare(self) -> str:
        return f"nn.RMSNorm({self.width}, eps={self.eps!r})"

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{t.module}({x})")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (o.RMSNormalization(x, o.param("weight"), axis=-1, epsilon=self.eps, stash_type=1),)


_OFFSET_RMS_NORM = Helper(
    "offset_rms_norm",
    '''
def offset_rms_norm(x, weight, offset, eps):
    """x / sqrt(mean(x²) + eps) · (offset + weight) over the last axis; in float32 at least, and rounded once."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return F.rms_norm(x.to(dtype), weight.shape, offset + weight.to(dtype), eps).to(x.dtype)
''',
)


@primitive
class OffsetRMSNorm(Op):
    """x[..., D] -> x / √(mean(x²) + eps) · (offset + weight), added in float32; weight[D] starts at 1 − offset.

    Gemma's offset is 1, so weight decay draws the factor to 1, not to 0.
    """

    positionwise = True

    width: int
    eps: float = 1e-6
    offset: float = 1.0

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (_same(x, self.width),)

    def params(self) -> tuple[Param, ...]:
        start = 1.0 - self.offset
        return (Param("weight", (self.width,), init=Init("constant", (start,)) if start else Init("zeros")),)

    def flops(self, x: Value) -> Size:
        return 4 * prod(x.shape)  # as RMSNorm: the offset is added once

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        x = inputs[0]
        yield from (x, Value("", (*x.shape[:-1], 1), "float32"))  # a mean square a row

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x / np.sqrt((x**2).mean(-1, keepdims=True) + self.eps) * (self.offset + weights["weight"]),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{t.use(_OFFSET_RMS_NORM)}({x}, {t.param('weight')}, {self.offset!r}, {self.eps!r})")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        scale = o.Add(o.cast(o.param("weight"), "float32"), o.scalar(self.offset, "float32"))
        return (o.RMSNormalization(x, o.cast(scale, "float"), axis=-1, epsilon=self.eps, stash_type=1),)


def _same(x: Value, width: int) -> Type:
    if x.shape[-1] != width:
        raise ShapeError(f"a norm of width {width} is given {show(x.shape)}")
    return Type(x.shape, x.dtype)
