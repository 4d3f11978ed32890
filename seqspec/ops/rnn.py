"""The plain recurrent layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqspec.ops.base import Array, Expr, OnnxWriter, TorchWriter, Weights
from seqspec.ops.recurrent import Recurrent

Activation = Literal["tanh", "relu", "sigmoid"]


@dataclass(frozen=True)
class Rnn(Recurrent):
    """x[B,T,I], mask[B,S]?, h0[B,L·D,H]? -> y[B,T,D·H], h[B,L·D,H]; h' = f(W x + b + U h + c); see `Recurrent`."""

    activation: Activation = "tanh"

    gates: ClassVar[int] = 1

    def reference(self, np: Any, weights: Weights, *inputs: Array | None) -> tuple[Array, ...]:
        raise NotImplementedError

    def torch(self, t: TorchWriter, *inputs: Expr | None) -> Expr:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, *inputs: Any) -> tuple[Any, ...]:
        raise NotImplementedError
