"""Plain recurrent layers."""

from __future__ import annotations

from typing import Literal

from seqspec.components.recurrent import Recurrent
from seqspec.ops.base import Op
from seqspec.ops.cells import RnnCell
from seqspec.ops.rnn import Rnn


class RNN(Recurrent):
    """h' = activation(W x + U h + b): Elman's network."""

    kind: Literal["rnn"]
    activation: Literal["tanh", "relu", "sigmoid"] = "tanh"
    """Applied to the sum."""

    def op(self, width: int, stateful: bool) -> Op:
        return Rnn(
            width, self.hidden_size, self.num_layers, self.bidirectional, self.bias, self.dropout or 0.0, stateful,
            activation=self.activation,
        )  # fmt: skip

    def cell(self, width: int) -> Op:
        return RnnCell(width, self.hidden_size, self.bias, activation=self.activation)
