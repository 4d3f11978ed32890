"""Gated recurrent units, in both variants of the reset gate and both of the update gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqspec.ops.base import Array, Helper, OnnxWriter, primitive
from seqspec.ops.recurrent import Recurrent
from seqspec.ops.recurrent_rule import Bias, Gates, Rule, sigmoid, state_gates

Reset = Literal["after", "before"]
Update = Literal["keep", "write"]


@primitive
class Gru(Recurrent):
    """x[B,T,I], mask[B,S]?, h0[B,L·D,H]? -> y[B,T,D·H], h[B,L·D,H]; see `Recurrent`.

    r, z = σ(W x + b + U h + c), gate rows r z n. `reset` after: n = tanh(W x + b + r (U h + c)), torch's and cuDNN's;
    before: n = tanh(W x + b + U (r h) + c), Cho's. `update` keep: h' = (1 − z) n + z h, torch's; write:
    h' = (1 − z) h + z n.
    """

    reset: Reset = "after"
    update: Update = "keep"

    @property
    def rule(self) -> Rule:
        return GruRule(self.reset, self.update)


@dataclass(frozen=True)
class GruRule(Rule):
    """One step of a GRU."""

    reset: Reset
    update: Update

    kind: ClassVar[str] = "GRU"
    gates: ClassVar[int] = 3
    onnx_blocks: ClassVar[tuple[int, ...]] = (1, 0, 2)  # r z n -> z r h

    @property
    def native(self) -> bool:
        return (self.reset, self.update) == ("after", "keep")

    @property
    def gates_of_state(self) -> int:
        return 3 if self.reset == "after" else 2

    @property
    def in_cudnn(self) -> bool:
        return self.reset == "after"

    @property
    def sums_biases(self) -> bool:
        return self.reset == "before"

    @property
    def onnx_attributes(self) -> dict[str, Any]:
        return {"linear_before_reset": int(self.reset == "after")}

    @property
    def onnx_signs(self) -> tuple[int, ...]:
        # ONNX has only `keep`; negated rows turn it into `write`, since σ(−a) = 1 − σ(a)
        return (-1 if self.update == "write" else 1, 1, 1)

    def step(self) -> Helper:
        name = "gru_step" + "_before" * (self.reset == "before") + "_write" * (self.update == "write")
        equation = "n = tanh(x + r (U h + c))" if self.reset == "after" else "n = tanh(x + U (r h) + c)"
        new = "(1 - z) * n + z * h" if self.update == "keep" else "(1 - z) * h + z * n"
        lines = [
            f"def {name}(x, state, weight, bias):",
            f'    """x = W x_t + b, of gates r z n; {equation}, h\' = {new.replace(" * ", " ")}"""',
            "    (h,) = state",
            *(f"    {line}" for line in (_AFTER if self.reset == "after" else _BEFORE)),
            f"    return ({new},)",
        ]
        return Helper(name, "\n" + "\n".join(lines) + "\n")

    def reference(self, np: Any, w: Gates, x: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        (h,) = state
        (W_r, W_z, W_n), (U_r, U_z, U_n), (b_r, b_z, b_n), (c_r, c_z, c_n) = (np.split(a, 3) for a in w[:4])
        r = sigmoid(np, x @ W_r.T + b_r + h @ U_r.T + c_r)
        z = sigmoid(np, x @ W_z.T + b_z + h @ U_z.T + c_z)
        inner = r * (h @ U_n.T + c_n) if self.reset == "after" else (r * h) @ U_n.T + c_n
        n = np.tanh(x @ W_n.T + b_n + inner)
        return ((1 - z) * n + z * h if self.update == "keep" else (1 - z) * h + z * n,)

    def onnx(self, o: OnnxWriter, bias: Bias, hidden_size: int, gates: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        (h,) = state
        if self.reset == "after":
            x_r, x_z, x_n = o.many("Split", 3, gates, axis=-1, num_outputs=3)
            h_r, h_z, h_n = o.many("Split", 3, state_gates(o, h, bias), axis=-1, num_outputs=3)
            r, z = o.Sigmoid(o.Add(x_r, h_r)), o.Sigmoid(o.Add(x_z, h_z))
            n = o.Tanh(o.Add(x_n, o.Mul(r, h_n)))
        else:
            rows = 2 * hidden_size
            both = o.derived("gates_r_z", (rows, hidden_size), lambda np, u: u[:rows], "weight_hh")
            new = o.derived("gate_n", (hidden_size, hidden_size), lambda np, u: u[rows:], "weight_hh")
            x_r_z, x_n = o.many("Split", 2, gates, o.ints(rows, hidden_size), axis=-1)
            r, z = o.many("Split", 2, o.Sigmoid(o.Gemm(h, both, x_r_z, transB=1)), axis=-1, num_outputs=2)
            n = o.Tanh(o.Gemm(o.Mul(r, h), new, x_n, transB=1))
        base, other = (n, h) if self.update == "keep" else (h, n)
        return (o.Add(base, o.Mul(z, o.Sub(other, base))),)


_AFTER = (
    "(x_r, x_z, x_n), (h_r, h_z, h_n) = x.chunk(3, -1), F.linear(h, weight, bias).chunk(3, -1)",
    "r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)",
    "n = torch.tanh(x_n + r * h_n)",
)
_BEFORE = (
    "x_r_z, x_n = (x if bias is None else x + bias).split([2 * h.shape[-1], h.shape[-1]], -1)",
    "weight_r_z, weight_n = weight.split([2 * h.shape[-1], h.shape[-1]])",
    "r, z = torch.sigmoid(x_r_z + F.linear(h, weight_r_z)).chunk(2, -1)",
    "n = torch.tanh(x_n + F.linear(r * h, weight_n))",
)
