"""Convolution over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod, sqrt
from typing import Any

from seqspec.graph.dims import Size, ceil_div, show
from seqspec.graph.ir import Init, Param, Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive


@primitive
class Conv1d(Op):
    """x[B, T, I] -> y_t = b + Σ_k W_k x_{s·t + k − ⌊K/2⌋} [B, ⌈T/s⌉, O], K odd, with zeros before and after x.

    weight[O, I / groups, K] as in torch: a cross-correlation, the kernel is not flipped. Group g of the outputs reads
    group g of the inputs. Weight and bias start uniform in ±1/√(K I / groups).
    """

    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    groups: int = 1
    bias: bool = True

    def infer(self, x: Value) -> tuple[Type, ...]:
        if len(x.shape) != 3 or x.shape[2] != self.inputs:
            raise ShapeError(f"a convolution of {self.inputs} channels is given {show(x.shape)}")
        return (Type((x.shape[0], ceil_div(x.shape[1], self.stride), self.outputs), x.dtype),)

    def params(self) -> tuple[Param, ...]:
        each = self.inputs // self.groups
        init = Init("uniform", (1 / sqrt(each * self.kernel),))
        weight = Param("weight", (self.outputs, each, self.kernel), init=init)
        return (weight, Param("bias", (self.outputs,), init=init)) if self.bias else (weight,)

    def flops(self, x: Value) -> Size:
        each = self.inputs // self.groups * self.kernel
        return 2 * x.shape[0] * ceil_div(x.shape[1], self.stride) * self.outputs * each

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from inputs

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        batch, length, _ = x.shape
        each, wide = self.inputs // self.groups, self.outputs // self.groups
        y = np.zeros((batch, -(-length // self.stride), self.outputs), x.dtype)
        for t in range(y.shape[1]):
            for k in range(self.kernel):
                at = self.stride * t + k - self.kernel // 2
                if not 0 <= at < length:
                    continue
                for g in range(self.groups):
                    w = weights["weight"][g * wide : (g + 1) * wide, :, k]
                    y[:, t, g * wide : (g + 1) * wide] += x[:, at, g * each : (g + 1) * each] @ w.T
        return (y + weights["bias"] if self.bias else y,)

    def declare(self) -> str:
        more = [f"stride={self.stride}"] if self.stride > 1 else []
        more += [f"padding={self.kernel // 2}"] if self.kernel > 1 else []
        more += [f"groups={self.groups}"] if self.groups > 1 else []
        more += [] if self.bias else ["bias=False"]
        return f"nn.Conv1d({', '.join([str(self.inputs), str(self.outputs), str(self.kernel), *more])})"

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(f"{t.module}({x.tight}.transpose(1, 2)).transpose(1, 2)")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        pad, weights = self.kernel // 2, [o.param("weight"), *([o.param("bias")] if self.bias else [])]
        y = o.Conv(
            o.Transpose(x, perm=[0, 2, 1]),
            *weights,
            kernel_shape=[self.kernel],
            strides=[self.stride],
            pads=[pad, pad],
            group=self.groups,
        )
        return (o.Transpose(y, perm=[0, 2, 1]),)


@primitive
class PatchEmbedding(Op):
    """pixels[B, C, H, W] -> x[B, H/p · W/p, D]: a linear map of each p x p patch, row by row from the top left.

    weight[D, C, p, p] as in torch's Conv2d; it and bias[D] start uniform in ±1/√(C p²).
    """

    channels: int
    width: int
    patch: int

    def infer(self, pixels: Value) -> tuple[Type, ...]:
        shape = pixels.shape
        if len(shape) != 4 or shape[1] != self.channels:
            raise ShapeError(f"patches of {self.channels} channels are cut from [B, C, H, W], not {show(shape)}")
        rows, columns = (self._count(size) for size in shape[2:])
        return (Type((shape[0], rows * columns, self.width), pixels.dtype),)

    def params(self) -> tuple[Param, ...]:
        init = Init("uniform", (1 / sqrt(self.channels * self.patch**2),))
        shape = (self.width, self.channels, self.patch, self.patch)
        return (Param("weight", shape, init=init), Param("bias", (self.width,), init=init))

    def flops(self, pixels: Value) -> Size:
        return 2 * prod(pixels.shape) * self.width

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        yield from inputs

    def reference(self, np: Any, weights: Weights, pixels: Array) -> tuple[Array, ...]:
        batch, channels, height, width = pixels.shape
        rows, columns, p = height // self.patch, width // self.patch, self.patch
        cut = pixels.reshape(batch, channels, rows, p, columns, p).transpose(0, 2, 4, 1, 3, 5)
        patches = cut.reshape(batch, rows * columns, channels * p * p)
        return (patches @ weights["weight"].reshape(self.width, -1).T + weights["bias"],)

    def declare(self) -> str:
        return f"nn.Conv2d({self.channels}, {self.width}, {self.patch}, stride={self.patch})"

    def torch(self, t: TorchWriter, pixels: Expr) -> Expr:
        return Expr(f"{t.module}({pixels}).flatten(2).transpose(1, 2)")

    def onnx(self, o: OnnxWriter, pixels: Any) -> tuple[Any, ...]:
        size = [self.patch, self.patch]
        y = o.Conv(pixels, o.param("weight"), o.param("bias"), kernel_shape=size, strides=size)
        return (o.Transpose(o.Reshape(y, o.ints(0, 0, -1)), perm=[0, 2, 1]),)

    def _count(self, size: Size) -> int:
        if not isinstance(size, int) or size % self.patch:
            raise ShapeError(f"{size} pixels are not cut into patches of {self.patch}")
        return size // self.patch
