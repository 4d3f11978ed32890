"""The language-model head: logits of the next token."""

from __future__ import annotations

from typing import Literal, Self

from seqspec.components.base import Finding, Findings, Positive, VocabularySize, width_of
from seqspec.components.heads import Head, Readable, Reading, check_table
from seqspec.components.norms import Norm
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.elementwise import Scale, Unary
from seqspec.ops.linear import Linear, TiedLinear
from seqspec.ops.loss import CrossEntropy


class LanguageModel(Head):
    """x[B, T, D] -> logits[B, T, V] over the vocabulary."""

    kind: Literal["lm"]
    tied: bool = False
    """Whether the token table is the output matrix."""
    bias: bool = False
    """Whether there is a learned bias per token; not with `tied`."""
    vocab_size: VocabularySize | None = None
    """The number of logits; the stack's vocabulary by default."""
    scale: Positive | None = None
    """Factor on the logits, 1 by default: 1 / sqrt(d_model) in T5's tied head, a constant in Cohere's."""
    softcap: Positive | None = None
    """A cap c turns a logit into c tanh(logit / c), as in Gemma 2; no cap by default."""

    def check(self, stack: Readable) -> Findings:
        yield from check_table(self.tied, self.vocab_size, stack)
        if self.tied and self.bias:
            yield Finding("SEQ227", ("bias",), "a tied head has no bias of its own", "write `bias: false`")

    def resolved(self, vocab_size: int | None, norm: Norm | None) -> Self:
        return self.model_copy(update={"vocab_size": self.vocab_size or vocab_size})

    def build(self, g: Builder, reading: Reading, name: str = "head") -> Value:
        if self.tied:
            logits = g.add(TiedLinear(), reading.x, reading.table, hint="logits")
        else:
            head = Linear(width_of(reading.x), int(self.vocab_size or 0), self.bias)
            logits = g.add(head, reading.x, name=name, hint="logits")
        scale = (self.scale or 1) / (self.softcap or 1)
        if scale != 1:
            logits = g.add(Scale(scale), logits, hint="logits")
        if self.softcap is None:
            return logits
        return g.add(Scale(self.softcap), g.add(Unary("tanh"), logits), hint="logits")

    @property
    def labels_positions(self) -> bool:
        return True

    def loss(self, g: Builder, reading: Reading, output: Value, *, shift: bool, prefix: str = "") -> Value:
        labels = g.input(f"{prefix}labels", output.shape[:-1], "int64", optional=True)
        return g.add(CrossEntropy(shift), output, labels, reading.mask, hint=f"{prefix}loss")
