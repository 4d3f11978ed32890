"""Rotary positions: pairs of channels turn by position · frequency, so that scores see only distances."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, prod
from typing import Any, Literal

from seqspec.graph.dims import Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, Helper, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights


@dataclass(frozen=True)
class Linear:
    """Every frequency divided by `factor`."""

    factor: float


@dataclass(frozen=True)
class Llama3:
    """Frequencies of long waves divided by `factor`, those of short waves kept, linear in 1/wavelength between.

    Long is above original_max_length / low_freq_factor, short below original_max_length / high_freq_factor.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_length: int


Scaling = Linear | Llama3


@dataclass(frozen=True)
class RopeTables(Op):
    """positions[B, T], x -> cos, sin [B, T, width / 2] of position · theta^(−2i/width), in the dtype of x.

    `width` is how many channels of a head turn. Angles are float64 and rounded once, at the end: float16 angles are off
    by 0.8 in the cosine at position 2000, and bfloat16 cannot tell 256 from 257.
    """

    width: int
    theta: float
    scaling: Scaling | None = None

    def infer(self, positions: Value, x: Value) -> tuple[Type, ...]:
        if self.width % 2:
            raise ShapeError(f"rotary positions turn pairs of channels: {self.width} is odd")
        table = Type((*positions.shape, self.width // 2), x.dtype)
        return (table, table)

    def flops(self, positions: Value, x: Value) -> Size:
        return 3 * prod(positions.shape) * (self.width // 2)  # a product, a cosine, a sine

    def reference(self, np: Any, weights: Weights, positions: Array, x: Array) -> tuple[Array, ...]:
        raise NotImplementedError

    def torch(self, t: TorchWriter, positions: Expr, x: Expr) -> Expr:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, positions: Any, x: Any) -> tuple[Any, ...]:
        raise NotImplementedError


@dataclass(frozen=True)
class Rope(Op):
    """x[B, H, T, d], cos, sin [B or 1, T, width / 2] -> x with its first `width` channels turned, the rest as they were.

    Pair (a, b) -> (a cos − b sin, b cos + a sin). `half_split` pairs channels (i, i + width/2), as the Hugging Face LLaMA
    weights are stored; `interleaved` pairs (2i, 2i + 1), as GPT-J and the original paper do.
    """

    layout: Literal["half_split", "interleaved"]
    width: int

    def infer(self, x: Value, cos: Value, sin: Value) -> tuple[Type, ...]:
        if len(x.shape) != 4:
            raise ShapeError(f"rotary positions turn [B, H, T, d], not {show(x.shape)}")
        half = cos.shape[-1]
        if self.width % 2 or half != self.width // 2:
            raise ShapeError(f"{self.width} channels cannot be turned by {half} angles")
        if isinstance(x.shape[3], int) and x.shape[3] < self.width:
            raise ShapeError(f"{self.width} channels cannot be turned in heads of width {x.shape[3]}")
        return (Type(x.shape, x.dtype),)

    def flops(self, x: Value, cos: Value, sin: Value) -> Size:
        return 3 * prod(x.shape[:3]) * self.width

    def reference(self, np: Any, weights: Weights, x: Array, cos: Array, sin: Array) -> tuple[Array, ...]:
        raise NotImplementedError

    def torch(self, t: TorchWriter, x: Expr, cos: Expr, sin: Expr) -> Expr:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, x: Any, cos: Any, sin: Any) -> tuple[Any, ...]:
        raise NotImplementedError
