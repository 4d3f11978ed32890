"""Long short-term memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seqspec.graph.ir import Init
from seqspec.ops.base import Array, Expr, OnnxWriter, TorchWriter, Weights
from seqspec.ops.recurrent import Recurrent, uniform


@dataclass(frozen=True)
class Lstm(Recurrent):
    """x[B,T,I], mask[B,S]?, h0[B,L·D,H]?, c0[B,L·D,H]? -> y[B,T,D·H], h[B,L·D,H], c[B,L·D,H]; see `Recurrent`.

    i, f, o = σ(W x + b + U h + c), g = tanh(…), gate rows i f g o; c' = f c + i g, h' = o tanh(c'). `forget_bias` is
    where the forget rows of the bias start: bias_ih there is it and bias_hh zero, so that it is counted once.
    """

    forget_bias: float | None = None

    gates: ClassVar[int] = 4
    carried: ClassVar[tuple[str, ...]] = ("h", "c")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_forget_bias(self.forget_bias, self.bias)

    def initial(self, name: str) -> Init:
        return forget_init(name, self.hidden_size, self.forget_bias)

    def reference(self, np: Any, weights: Weights, *inputs: Array | None) -> tuple[Array, ...]:
        raise NotImplementedError

    def torch(self, t: TorchWriter, *inputs: Expr | None) -> Expr:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, *inputs: Any) -> tuple[Any, ...]:
        raise NotImplementedError


def check_forget_bias(forget_bias: float | None, bias: str) -> None:
    if forget_bias is not None and bias == "none":
        raise ValueError("a forget bias needs a bias")


def forget_init(name: str, hidden_size: int, forget_bias: float | None) -> Init:
    """The start of an LSTM's parameter: the forget rows (the second quarter) of its biases may be set."""
    start = uniform(hidden_size)
    if forget_bias is None or name.startswith("weight"):
        return start
    forget = Init("constant", (forget_bias,)) if name == "bias_ih" else Init("zeros")
    return Init("blocks", (start, forget, start, start))
