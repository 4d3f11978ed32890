"""Gated recurrent units."""

from __future__ import annotations

from typing import Literal

from seqspec.components.recurrent import Recurrent
from seqspec.ops.base import Op
from seqspec.ops.cells import GruCell
from seqspec.ops.gru import Gru


class GRU(Recurrent):
    """r, z = sigmoid(…); n = tanh(W x + r (U h)); h' = (1 - z) n + z h. Gate rows r, z, n, as torch stores them."""

    kind: Literal["gru"]
    reset: Literal["before", "after"] = "after"
    """The reset gate acts on h before the recurrent matrix (Cho et al. 2014), or after it (cuDNN, torch)."""
    update: Literal["keep", "write"] = "keep"
    """What z does: `keep` h' = (1 - z) n + z h (torch), `write` h' = (1 - z) h + z n (Bahdanau et al. 2015)."""

    def op(self, width: int, stateful: bool) -> Op:
        return Gru(
            width, self.hidden_size, self.num_layers, self.bidirectional, self.bias, self.dropout or 0.0, stateful,
            reset=self.reset, update=self.update,
        )  # fmt: skip

    def cell(self, width: int) -> Op:
        return GruCell(width, self.hidden_size, self.bias, reset=self.reset, update=self.update)
