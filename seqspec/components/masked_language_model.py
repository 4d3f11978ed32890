"""The masked-language-model head: logits of masked tokens."""

from __future__ import annotations

from typing import Literal, Self

from seqspec.components.activations import Activation, activated
from seqspec.components.base import Findings, VocabularySize, width_of
from seqspec.components.heads import Head, Readable, Reading, check_encoder, check_table
from seqspec.components.norms import LayerNorm, Norm
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.bias import Bias
from seqspec.ops.linear import Linear, TiedLinear
from seqspec.ops.loss import CrossEntropy


class MaskedLanguageModel(Head):
    """norm(activation(W x + b)), then logits[B, T, V] over the vocabulary, for masked tokens as in BERT."""

    kind: Literal["masked_lm"]
    tied: bool = False
    """Whether the token table is the output matrix, as in BERT."""
    bias: bool = True
    """Whether there is a learned bias per token, also with `tied`."""
    activation: Activation = "gelu"
    """Applied to W x + b."""
    norm: Norm | None = None
    """The norm after the activation; the stack's by default."""
    vocab_size: VocabularySize | None = None
    """The number of logits; the stack's vocabulary by default."""

    def check(self, stack: Readable) -> Findings:
        yield from check_table(self.tied, self.vocab_size, stack)
        yield from check_encoder(self.kind, stack)

    def resolved(self, vocab_size: int | None, norm: Norm | None) -> Self:
        own = self.norm or norm or LayerNorm.plain()
        return self.model_copy(update={"vocab_size": self.vocab_size or vocab_size, "norm": own})

    def build(self, g: Builder, reading: Reading, name: str = "head") -> Value:
        width, vocabulary = width_of(reading.x), int(self.vocab_size or 0)
        x = activated(g, g.add(Linear(width, width), reading.x, name=f"{name}_transform"), self.activation)
        assert self.norm is not None
        x = g.add(self.norm.op(width), x, name=f"{name}_norm", hint="x")
        if not self.tied:
            return g.add(Linear(width, vocabulary, self.bias), x, name=name, hint="logits")
        logits = g.add(TiedLinear(), x, reading.table, hint="logits")
        if not self.bias:
            return logits
        return g.add(Bias(vocabulary), logits, name=name, hint="logits")

    @property
    def labels_positions(self) -> bool:
        return True

    def loss(self, g: Builder, reading: Reading, output: Value, *, shift: bool, prefix: str = "") -> Value:
        labels = g.input(f"{prefix}labels", output.shape[:-1], "int64", optional=True)
        return g.add(CrossEntropy(), output, labels, reading.mask, hint=f"{prefix}loss")
