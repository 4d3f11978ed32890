"""Gated recurrent units, with both places of the reset gate and both meanings of the update gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqspec.ops.base import Array, Expr, OnnxWriter, TorchWriter, Weights
from seqspec.ops.recurrent import Recurrent

Reset = Literal["after", "before"]
Update = Literal["keep", "write"]


@dataclass(frozen=True)
class Gru(Recurrent):
    """x[B,T,I], mask[B,S]?, h0[B,L·D,H]? -> y[B,T,D·H], h[B,L·D,H]; see `Recurrent`.

    r, z = σ(W x + b + U h + c), gate rows r z n. `reset` after: n = tanh(W x + b + r (U h + c)), torch's and cuDNN's;
    before: n = tanh(W x + b + U (r h) + c), Cho's. `update` keep: h' = (1 − z) n + z h, torch's; write:
    h' = (1 − z) h + z n.
    """

    reset: Reset = "after"
    update: Update = "keep"

    gates: ClassVar[int] = 3

    def reference(self, np: Any, weights: Weights, *inputs: Array | None) -> tuple[Array, ...]:
        raise NotImplementedError

    def torch(self, t: TorchWriter, *inputs: Expr | None) -> Expr:
        raise NotImplementedError

    def onnx(self, o: OnnxWriter, *inputs: Any) -> tuple[Any, ...]:
        raise NotImplementedError
