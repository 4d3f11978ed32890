"""The CTC head: logits for every frame, which decode to text once repeats and blanks are removed."""

from __future__ import annotations

from typing import Literal

from seqspec.components.base import Finding, Findings, TokenId, VocabularySize, width_of
from seqspec.components.heads import Head, Readable, Reading, check_encoder
from seqspec.graph.builder import Builder
from seqspec.graph.dims import LABELS, dim
from seqspec.graph.ir import Value
from seqspec.ops.ctc import CtcLoss
from seqspec.ops.linear import Linear


class Ctc(Head):
    """x[B, T, D] -> logits[B, T, V]. The likeliest ids, with repeats merged and blanks removed, are the text."""

    kind: Literal["ctc"]
    vocab_size: VocabularySize
    """The number of logits, that of the blank included."""
    blank_id: TokenId = 0
    """The id of the blank."""
    bias: bool = True
    """Whether the linear map has a bias."""

    def check(self, stack: Readable) -> Findings:
        yield from check_encoder(self.kind, stack)
        if self.blank_id >= self.vocab_size:
            text = f"blank_id ({self.blank_id}) must be below vocab_size ({self.vocab_size})"
            yield Finding("SEQ229", ("blank_id",), text)

    def build(self, g: Builder, reading: Reading, name: str = "head") -> Value:
        head = Linear(width_of(reading.x), self.vocab_size, self.bias)
        return g.add(head, reading.x, name=name, hint="logits")

    @property
    def labels_positions(self) -> bool:
        return True

    def loss(self, g: Builder, reading: Reading, output: Value, *, shift: bool, prefix: str = "") -> Value:
        labels = g.input(f"{prefix}labels", (output.shape[0], dim(LABELS)), "int64", optional=True)
        return g.add(CtcLoss(self.blank_id), output, labels, reading.mask, hint=f"{prefix}loss")
