"""Long short-term memory."""

from __future__ import annotations

from typing import Literal

from seqspec.components.base import Finding, Findings, Width
from seqspec.components.recurrent import Recurrent
from seqspec.ops.base import Op
from seqspec.ops.cells import LstmCell
from seqspec.ops.lstm import Lstm


class LSTM(Recurrent):
    """i, f, o = sigmoid(…), g = tanh(…); c' = f c + i g; h' = o tanh(c'). Gate rows i, f, g, o, as in torch."""

    kind: Literal["lstm"]
    forget_bias: float | None = None
    """Initial value of the forget gate's bias, summed over both bias vectors; random as in torch by default."""
    peepholes: bool = False
    """Whether the gates see the cell: i and f add p ⊙ c, o adds p ⊙ c' (Gers et al. 2002)."""
    projection_size: Width | None = None
    """Channels of h = R (o tanh(c')), torch's proj_size. By default there is no R, and h has hidden_size channels."""

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.projection_size or self.hidden_size, self.hidden_size)

    def check(self) -> Findings:
        yield from super().check()
        if self.forget_bias is not None and self.bias == "none":
            yield Finding("SEQ232", ("forget_bias",), "`forget_bias` starts a bias, and `bias: none` leaves none")

    def op(self, width: int, stateful: bool) -> Op:
        return Lstm(
            width, self.hidden_size, self.num_layers, self.bidirectional, self.bias, self.dropout or 0.0, stateful,
            forget_bias=self.forget_bias, peepholes=self.peepholes, projection_size=self.projection_size,
        )  # fmt: skip

    def cell(self, width: int) -> Op:
        return LstmCell(
            width, self.hidden_size, self.bias,
            forget_bias=self.forget_bias, peepholes=self.peepholes, projection_size=self.projection_size,
        )  # fmt: skip
