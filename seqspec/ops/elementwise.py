"""Elementwise ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import erf, prod, sqrt
from typing import Any, Literal

from seqspec.graph.dims import Shape, Size, show
from seqspec.graph.ir import Value
from seqspec.ops.base import Array, Expr, OnnxWriter, Op, ShapeError, TorchWriter, Type, Weights, primitive

Activation = Literal["relu", "relu2", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]

# an exponential or a tanh counts as one
_FLOPS: dict[Activation, int] = {"relu": 0, "relu2": 1, "gelu": 5, "gelu_tanh": 9, "silu": 4, "tanh": 1, "sigmoid": 3}

_TORCH: dict[Activation, str] = {
    "relu": "F.relu({})",
    "relu2": "F.relu({}).square()",
    "gelu": "F.gelu({})",
    "gelu_tanh": 'F.gelu({}, approximate="tanh")',
    "silu": "F.silu({})",
    "tanh": "torch.tanh({})",
    "sigmoid": "torch.sigmoid({})",
}


@primitive
class Unary(Op):
    """x -> kind(x). `relu2` is max(x, 0)².

    `gelu` is x·Φ(x), by erf; `gelu_tanh` approximates it by a tanh (GPT-2); `silu` is x·σ(x).
    """

    positionwise = True

    kind: Activation

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (Type(x.shape, x.dtype),)

    def flops(self, x: Value) -> Size:
        return _FLOPS[self.kind] * prod(x.shape)

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        match self.kind:
            case "relu" | "tanh" | "sigmoid":
                yield outputs[0]
            case "relu2":
                yield replace(outputs[0], name="")  # what is squared
            case _:
                yield inputs[0]

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        match self.kind:
            case "relu":
                return (np.maximum(x, 0),)
            case "relu2":
                return (np.where(x > 0, x, 0) ** 2,)
            case "gelu":
                return (x * (1 + np.vectorize(erf, otypes=[float])(x / sqrt(2))) / 2,)
            case "gelu_tanh":
                return (x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,)
            case "silu":
                return (x * _sigmoid(np, x),)
            case "tanh":
                return (np.tanh(x),)
            case "sigmoid":
                return (_sigmoid(np, x),)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr(_TORCH[self.kind].format(x))

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        match self.kind:
            case "relu":
                return (o.Relu(x),)
            case "relu2":
                positive = o.Relu(x)
                return (o.Mul(positive, positive),)
            case "gelu":
                return (o.Gelu(x, approximate="none"),)
            case "gelu_tanh":
                return (o.Gelu(x, approximate="tanh"),)
            case "silu":
                return (o.Mul(x, o.Sigmoid(x)),)
            case "tanh":
                return (o.Tanh(x),)
            case "sigmoid":
                return (o.Sigmoid(x),)


@primitive
class Add(Op):
    """a, b -> a + b, broadcast as in NumPy."""

    positionwise = True

    def infer(self, a: Value, b: Value) -> tuple[Type, ...]:
        return (Type(broadcast(a.shape, b.shape), a.dtype),)

    def flops(self, a: Value, b: Value) -> Size:
        return prod(broadcast(a.shape, b.shape))

    def backward(self, takes: Sequence[bool], a: Value, b: Value) -> Size:
        return 0  # a gradient goes on as it is

    def reference(self, np: Any, weights: Weights, a: Array, b: Array) -> tuple[Array, ...]:
        return (a + b,)

    def torch(self, t: TorchWriter, a: Expr, b: Expr) -> Expr:
        return Expr.infix(f"{a.tight} + {b.tight}")

    def onnx(self, o: OnnxWriter, a: Any, b: Any) -> tuple[Any, ...]:
        return (o.Add(a, b),)


@primitive
class Multiply(Op):
    """a, b -> a · b, broadcast as in NumPy."""

    positionwise = True

    def infer(self, a: Value, b: Value) -> tuple[Type, ...]:
        return (Type(broadcast(a.shape, b.shape), a.dtype),)

    def flops(self, a: Value, b: Value) -> Size:
        return prod(broadcast(a.shape, b.shape))

    def keeps(self, takes: Sequence[bool], inputs: Sequence[Any], outputs: Sequence[Value]) -> Iterator[Value | None]:
        (a, b), (of_a, of_b) = inputs, takes
        yield from (*([b] if of_a else []), *([a] if of_b else []))

    def reference(self, np: Any, weights: Weights, a: Array, b: Array) -> tuple[Array, ...]:
        return (a * b,)

    def torch(self, t: TorchWriter, a: Expr, b: Expr) -> Expr:
        return Expr.infix(f"{a.tight} * {b.tight}")

    def onnx(self, o: OnnxWriter, a: Any, b: Any) -> tuple[Any, ...]:
        return (o.Mul(a, b),)


@primitive
class Scale(Op):
    """x -> factor · x"""

    positionwise = True

    factor: float

    def infer(self, x: Value) -> tuple[Type, ...]:
        return (Type(x.shape, x.dtype),)

    def flops(self, x: Value) -> Size:
        return prod(x.shape)

    def reference(self, np: Any, weights: Weights, x: Array) -> tuple[Array, ...]:
        return (x * self.factor,)

    def torch(self, t: TorchWriter, x: Expr) -> Expr:
        return Expr.infix(f"{x.tight} * {self.factor!r}")

    def onnx(self, o: OnnxWriter, x: Any) -> tuple[Any, ...]:
        return (o.Mul(x, o.scalar(self.factor)),)


def broadcast(a: Shape, b: Shape) -> Shape:
    """The shape of a ∘ b, as in NumPy: axes are matched from the last, and a 1 stretches. ShapeError if they differ."""
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    joined = tuple(x if y == 1 else y if x in (1, y) else None for x, y in pairs)
    sizes = tuple(size for size in joined if size is not None)
    if len(sizes) != rank:
        raise ShapeError(f"{show(a)} and {show(b)} do not go together")
    return sizes


def _sigmoid(np: Any, x: Array) -> Array:
    return 1 / (1 + np.exp(-x))
