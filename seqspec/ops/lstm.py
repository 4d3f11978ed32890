"""Long short-term memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seqspec.graph.ir import Init
from seqspec.ops.base import Array, Helper, OnnxWriter, primitive
from seqspec.ops.recurrent import Recurrent
from seqspec.ops.recurrent_rule import Bias, Gates, Rule, input_gates, sigmoid, uniform


@primitive
class Lstm(Recurrent):
    """x[B,T,I], mask[B,S]?, h0[B,L·D,H]?, c0[B,L·D,H]? -> y[B,T,D·H], h[B,L·D,H], c[B,L·D,H]; see `Recurrent`.

    i, f, o = σ(W x + b + U h + c), g = tanh(…), gate rows i f g o; c' = f c + i g, h' = o tanh(c'). `forget_bias` is
    where the forget rows of the bias start: bias_ih there is it and bias_hh zero, so that it is counted once.
    """

    forget_bias: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_forget_bias(self.forget_bias, self.bias)

    @property
    def rule(self) -> Rule:
        return LstmRule()

    def initial(self, name: str) -> Init:
        return forget_init(name, self.hidden_size, self.forget_bias)

    def declare(self) -> str:
        return with_forget_bias(super().declare(), self.forget_bias)

    def helpers(self) -> tuple[Helper, ...]:
        return super().helpers() + ((WITH_FORGET_BIAS,) if self.forget_bias is not None else ())


@dataclass(frozen=True)
class LstmRule(Rule):
    """One step of an LSTM."""

    kind: ClassVar[str] = "LSTM"
    gates: ClassVar[int] = 4
    carried: ClassVar[tuple[str, ...]] = ("h", "c")
    onnx_blocks: ClassVar[tuple[int, ...]] = (0, 3, 1, 2)  # i f g o -> i o f c

    @property
    def native(self) -> bool:
        return True

    def step(self) -> Helper:
        return _STEP

    def reference(self, np: Any, w: Gates, x: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        h, c = state
        i, f, g, o = np.split(x @ w.W.T + w.b + h @ w.U.T + w.c, 4, axis=-1)
        c = sigmoid(np, f) * c + sigmoid(np, i) * np.tanh(g)
        return sigmoid(np, o) * np.tanh(c), c

    def onnx(self, o: OnnxWriter, bias: Bias, hidden_size: int, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        h, c = state
        gates = o.Gemm(h, o.param("weight_hh"), input_gates(o, x, bias, summed=4 * hidden_size), transB=1)
        i, f, g, out = o.many("Split", 4, gates, axis=-1, num_outputs=4)
        c = o.Add(o.Mul(o.Sigmoid(f), c), o.Mul(o.Sigmoid(i), o.Tanh(g)))
        return o.Mul(o.Sigmoid(out), o.Tanh(c)), c


_STEP = Helper(
    "lstm_step",
    '''
def lstm_step(x, state, weight, bias):
    """x = W x_t + b, of gates i f g o; c' = f c + i g, h' = o tanh(c')"""
    h, c = state
    i, f, g, o = (x + F.linear(h, weight, bias)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c
''',
)


WITH_FORGET_BIAS = Helper(
    "with_forget_bias",
    '''
def with_forget_bias(lstm, start):
    """The module with the forget rows (the second quarter) of bias_ih at `start` and of bias_hh at 0: it counts once"""
    for name, bias in lstm.named_parameters():
        if name.startswith("bias"):
            nn.init.constant_(bias.chunk(4)[1], start if name.startswith("bias_ih") else 0.0)
    return lstm
''',
)


def with_forget_bias(constructor: str, forget_bias: float | None) -> str:
    """The constructor's text, and what sets the forget bias."""
    return constructor if forget_bias is None else f"{WITH_FORGET_BIAS.name}({constructor}, {forget_bias!r})"


def check_forget_bias(forget_bias: float | None, bias: Bias) -> None:
    """ValueError where there is no bias that could start at it."""
    if forget_bias is not None and bias == "none":
        raise ValueError("a forget bias needs a bias")


def forget_init(name: str, hidden_size: int, forget_bias: float | None) -> Init:
    """The start of an LSTM's parameter: the forget rows (the second quarter) of its biases may be set."""
    start = uniform(hidden_size)
    if forget_bias is None or name.startswith("weight"):
        return start
    forget = Init("constant", (forget_bias,)) if name == "bias_ih" else Init("zeros")
    return Init("blocks", (start, forget, start, start))
