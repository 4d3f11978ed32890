"""Long short-term memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seqspec.graph.ir import Init
from seqspec.ops.base import Array, Helper, OnnxWriter, primitive
from seqspec.ops.recurrent import Recurrent
from seqspec.ops.recurrent_rule import Bias, Gates, Rule, matrix, sigmoid, uniform


@primitive
class Lstm(Recurrent):
    """x[B,T,I], mask[B,S]?, h0[B,L·D,O]?, c0[B,L·D,H]? -> y[B,T,D·O], h[B,L·D,O], c[B,L·D,H]; see `Recurrent`.

    i, f, o = σ(W x + b + U h + c), g = tanh(…), gate rows i f g o; c' = f c + i g, h' = o tanh(c'). `forget_bias` is
    the initial value of the forget gate's bias: those rows of bias_ih start at it and those of bias_hh at zero, so that
    it counts once.

    With `peepholes` the gates see the cell: i and f add p ⊙ c, o adds p ⊙ c'; weight_ch[3H], rows i f o (Gers 2002;
    ONNX orders P as i o f; torch has none). With a `projection_size` O, h' = R (o tanh(c')), weight_hr[O,H]
    (Sak 2014; torch's proj_size; ONNX has none).
    """

    forget_bias: float | None = None
    peepholes: bool = False
    projection_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_forget_bias(self.forget_bias, self.bias)

    @property
    def rule(self) -> Rule:
        return LstmRule(self.peepholes, self.projection_size)

    @property
    def native(self) -> bool:
        return super().native and (self.projection_size or 0) < self.hidden_size  # torch only projects down

    def initial(self, name: str) -> Init:
        return forget_init(name, self.hidden_size, self.forget_bias)

    def declare(self) -> str:
        return with_forget_bias(super().declare(), self.forget_bias)

    def helpers(self) -> tuple[Helper, ...]:
        return super().helpers() + ((WITH_FORGET_BIAS,) if self.forget_bias is not None else ())


@dataclass(frozen=True)
class LstmRule(Rule):
    """One step of an LSTM."""

    peepholes: bool = False
    projection_size: int | None = None

    kind: ClassVar[str] = "LSTM"
    gates: ClassVar[int] = 4
    carried: ClassVar[tuple[str, ...]] = ("h", "c")
    onnx_blocks: ClassVar[tuple[int, ...]] = (0, 3, 1, 2)  # i f g o -> i o f c

    @property
    def native(self) -> bool:
        return not self.peepholes

    @property
    def native_cell(self) -> bool:
        return self.native and self.projection_size is None

    @property
    def options(self) -> str:
        return "" if self.projection_size is None else f", proj_size={self.projection_size}"

    @property
    def stepwise_options(self) -> str:
        return (", peepholes=True" if self.peepholes else "") + self.options

    @property
    def in_onnx(self) -> bool:
        return self.projection_size is None

    @property
    def in_cudnn(self) -> bool:
        return self.native_cell

    def widths(self, hidden_size: int) -> tuple[int, ...]:
        return (self.projection_size or hidden_size, hidden_size)

    def more_parameters(self, hidden_size: int) -> dict[str, tuple[int, ...]]:
        peephole: dict[str, tuple[int, ...]] = {"weight_ch": (3 * hidden_size,)} if self.peepholes else {}
        return peephole | ({"weight_hr": (self.projection_size, hidden_size)} if self.projection_size else {})

    def step(self) -> Helper:
        name = "lstm_step" + "_peepholes" * self.peepholes + "_projected" * bool(self.projection_size)
        more = ", weight_ch" * self.peepholes + ", weight_hr" * bool(self.projection_size)
        see = "; i, f see c and o sees c'" if self.peepholes else ""
        hidden = "R (o tanh(c'))" if self.projection_size else "o tanh(c')"
        h = "torch.sigmoid(o) * torch.tanh(new)"
        lines = [
            f"def {name}(x, state, weight, bias{more}):",
            f'    """x = W x_t + b, of gates i f g o; c\' = f c + i g, h\' = {hidden}{see}"""',
            "    h, c = state",
            "    i, f, g, o = (x + F.linear(h, weight, bias)).chunk(4, -1)",
            *(f"    {line}" for line in (_PEEPHOLES if self.peepholes else (_NEW.replace("new", "c"),))),
            f"    return {f'F.linear({h}, weight_hr)' if self.projection_size else h}, new",
        ]
        text = "\n".join(lines) + "\n"
        return Helper(name, "\n" + (text if self.peepholes else text.replace("new", "c")))

    def reference(self, np: Any, w: Gates, x: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        h, c = state
        i, f, g, o = np.split(x @ w.W.T + w.b + h @ w.U.T + w.c, 4, axis=-1)
        p_i, p_f, p_o = (0, 0, 0) if w.peephole is None else np.split(w.peephole, 3)
        new = sigmoid(np, f + p_f * c) * c + sigmoid(np, i + p_i * c) * np.tanh(g)
        h = sigmoid(np, o + p_o * new) * np.tanh(new)
        return h if w.projection is None else h @ w.projection.T, new

    def onnx(self, o: OnnxWriter, bias: Bias, hidden_size: int, gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        h, c = state
        gates = o.Gemm(h, matrix(o, "weight_hh"), gates)
        i, f, g, out = o.many("Split", 4, gates, axis=-1, num_outputs=4)
        p_i = p_f = p_o = None
        if self.peepholes:
            p_i, p_f, p_o = o.many("Split", 3, o.param("weight_ch"), axis=0, num_outputs=3)
        new = o.Add(o.Mul(o.Sigmoid(_peeping(o, f, p_f, c)), c), o.Mul(o.Sigmoid(_peeping(o, i, p_i, c)), o.Tanh(g)))
        h = o.Mul(o.Sigmoid(_peeping(o, out, p_o, new)), o.Tanh(new))
        return o.Gemm(h, matrix(o, "weight_hr")) if self.projection_size else h, new


def _peeping(o: OnnxWriter, gate: Any, weight: Any, c: Any) -> Any:
    """gate + p ⊙ c, or the gate alone if there is no p."""
    return gate if weight is None else o.Add(gate, o.Mul(weight, c))


_NEW = "new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)"
_PEEPHOLES = (
    "p_i, p_f, p_o = weight_ch.chunk(3)",
    "new = torch.sigmoid(f + p_f * c) * c + torch.sigmoid(i + p_i * c) * torch.tanh(g)",
    "o = o + p_o * new",
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
    """The text of a constructor, wrapped in the helper that sets the forget bias if there is one."""
    return constructor if forget_bias is None else f"{WITH_FORGET_BIAS.name}({constructor}, {forget_bias!r})"


def check_forget_bias(forget_bias: float | None, bias: Bias) -> None:
    """ValueError for a forget bias without a bias to set."""
    if forget_bias is not None and bias == "none":
        raise ValueError("a forget bias needs a bias")


def forget_init(name: str, hidden_size: int, forget_bias: float | None) -> Init:
    """The initialisation of an LSTM's parameter: the forget rows (the second quarter) of its biases may be set."""
    start = uniform(hidden_size)
    if forget_bias is None or name.startswith("weight"):
        return start
    forget = Init("constant", (forget_bias,)) if name == "bias_ih" else Init("zeros")
    return Init("blocks", (start, forget, start, start))
