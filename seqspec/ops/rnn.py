"""The simple recurrent layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqspec.ops.base import Array, Helper, OnnxWriter, primitive
from seqspec.ops.recurrent import Recurrent
from seqspec.ops.recurrent_rule import Bias, Gates, Rule, matrix, sigmoid

Activation = Literal["tanh", "relu", "sigmoid"]


@primitive
class Rnn(Recurrent):
    """x[B,T,I], mask[B,S]?, h0[B,L·D,H]? -> y[B,T,D·H], h[B,L·D,H]; h' = f(W x + b + U h + c); see `Recurrent`."""

    activation: Activation = "tanh"

    @property
    def rule(self) -> Rule:
        return RnnRule(self.activation)


@dataclass(frozen=True)
class RnnRule(Rule):
    """One step of a simple recurrent layer."""

    activation: Activation

    kind: ClassVar[str] = "RNN"
    gates: ClassVar[int] = 1
    onnx_blocks: ClassVar[tuple[int, ...]] = (0,)

    @property
    def native(self) -> bool:
        return self.activation != "sigmoid"

    @property
    def options(self) -> str:
        return "" if self.activation == "tanh" else f', nonlinearity="{self.activation}"'

    @property
    def onnx_attributes(self) -> dict[str, Any]:
        return {"activations": [self.activation.capitalize()]}

    @property
    def fast_in_onnx(self) -> bool:
        return False

    @property
    def in_cudnn(self) -> bool:
        return self.activation == "tanh"

    def step(self) -> Helper:
        return _STEPS[self.activation]

    def reference(self, np: Any, w: Gates, x: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        (h,) = state
        a = x @ w.W.T + w.b + h @ w.U.T + w.c
        if self.activation == "relu":
            return (np.maximum(a, 0),)
        return (np.tanh(a) if self.activation == "tanh" else sigmoid(np, a),)

    def onnx(self, o: OnnxWriter, bias: Bias, hidden_size: int, gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        (h,) = state
        return (getattr(o, self.activation.capitalize())(o.Gemm(h, matrix(o, "weight_hh"), gates)),)


def _step(activation: Activation) -> Helper:
    name = f"{activation}_step"
    text = f'''
def {name}(x, state, weight, bias):
    """x = W x_t + b; h' = {activation}(x + U h + c)"""
    return (torch.{activation}(x + F.linear(state[0], weight, bias)),)
'''
    return Helper(name, text)


_STEPS: dict[Activation, Helper] = {"tanh": _step("tanh"), "relu": _step("relu"), "sigmoid": _step("sigmoid")}
