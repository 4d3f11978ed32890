"""Heads: what is read off the last stack."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

from seqspec.components.base import ByKind, Component, Count, Finding, Findings, Positive, width_of
from seqspec.components.inputs import TokenId, Tokens
from seqspec.components.linear import Activation
from seqspec.components.norms import LayerNorm, Norm
from seqspec.graph.builder import Builder
from seqspec.graph.dims import dim
from seqspec.graph.ir import Value
from seqspec.ops.elementwise import Scale, Unary
from seqspec.ops.linear import Linear, TiedLinear
from seqspec.ops.loss import CrossEntropy, MeanSquaredError

if TYPE_CHECKING:
    from seqspec.ops.state import SelectState

Pooling = Literal["none", "first", "last", "mean", "max", "final_state"]


@dataclass
class Reading:
    """What heads read: outputs, padding, the last layer's final h, and the token table they may be tied to."""

    x: Value
    mask: Value | None = None
    final: tuple[Value, SelectState] | None = None  # the last layer's h, and the op that picks what is read of it
    table: Value | None = None
    stateful: bool = False  # whether the stack is run in chunks, so that `last` must remember
    pooled: dict[str, Value] = field(default_factory=dict)  # what some head has reduced already


class Readable(NamedTuple):
    """The same before there are values: what the checks need."""

    stack: str
    width: int
    tokens: Tokens | None
    table_width: int | None
    vocab_size: int | None
    final_state: bool


class Head(Component):
    """What all heads share."""

    def check(self, stack: Readable) -> Findings:
        yield from ()

    def resolved(self, vocab_size: int | None, norm: Norm | None) -> Self:
        """Every default filled in: `vocab_size` and `norm` are the stack's."""
        return self

    @property
    def pooled(self) -> Pooling:
        """How time is reduced."""
        return "none"

    @property
    def labels_positions(self) -> bool:
        """Whether there is a label for every position, so that the loss asks which are real."""
        return False

    def loss(self, g: Builder, reading: Reading, output: Value, *, shift: bool, prefix: str = "") -> Value | None:
        """What `labels` make of the output; None for a head that learns nothing by itself.

        `shift`: the stack reads no future, so that its next token can be asked of it. `prefix` goes before `labels` and
        `loss` where there are several heads.
        """
        return None


class LanguageModel(Head):
    """x[B, T, D] -> logits[B, T, V] over the vocabulary."""

    kind: Literal["lm"]
    tied: bool = False
    """Whether the token table is the output matrix."""
    bias: bool = False
    """Whether there is a learned bias per token; not with `tied`."""
    vocab_size: Count | None = None
    """How many logits; the stack's vocabulary by default."""
    scale: Positive | None = None
    """What logits are multiplied with, 1 by default: T5's tied head has 1 / sqrt(d_model), Cohere's a constant."""
    softcap: Positive | None = None
    """c makes a logit c tanh(logit / c), as in Gemma 2; no cap by default."""

    def check(self, stack: Readable) -> Findings:
        yield from _check_table(self.tied, self.vocab_size, stack)
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


class MaskedLanguageModel(Head):
    """norm(activation(W x + b)), then logits[B, T, V] over the vocabulary: what stands under a mask, as in BERT."""

    kind: Literal["masked_lm"]
    tied: bool = False
    """Whether the token table is the output matrix; it is BERT's."""
    bias: bool = True
    """Whether there is a learned bias per token, with `tied` too."""
    activation: Activation = "gelu"
    """What W x + b passes through."""
    norm: Norm | None = None
    """The norm behind it; the stack's by default."""
    vocab_size: Count | None = None
    """How many logits; the stack's vocabulary by default."""

    def check(self, stack: Readable) -> Findings:
        yield from _check_table(self.tied, self.vocab_size, stack)
        yield from _check_encoder(self.kind, stack)

    def resolved(self, vocab_size: int | None, norm: Norm | None) -> Self:
        own = self.norm or norm or LayerNorm.plain()
        return self.model_copy(update={"vocab_size": self.vocab_size or vocab_size, "norm": own})

    def build(self, g: Builder, reading: Reading, name: str = "head") -> Value:
        width, vocabulary = width_of(reading.x), int(self.vocab_size or 0)
        x = g.add(Linear(width, width), reading.x, name=f"{name}_transform")
        if self.activation != "none":
            x = g.add(Unary(self.activation), x)
        assert self.norm is not None
        x = g.add(self.norm.op(width), x, name=f"{name}_norm", hint="x")
        if not self.tied:
            return g.add(Linear(width, vocabulary, self.bias), x, name=name, hint="logits")
        logits = g.add(TiedLinear(), x, reading.table, hint="logits")
        if not self.bias:
            return logits
        from seqspec.ops.bias import Bias

        return g.add(Bias(vocabulary), logits, name=name, hint="logits")

    @property
    def labels_positions(self) -> bool:
        return True

    def loss(self, g: Builder, reading: Reading, output: Value, *, shift: bool, prefix: str = "") -> Value:
        labels = g.input(f"{prefix}labels", output.shape[:-1], "int64", optional=True)
        return g.add(CrossEntropy(), output, labels, reading.mask, hint=f"{prefix}loss")


class Ctc(Head):
    """x[B, T, D] -> logits[B, T, V]; text is what is left of the likeliest ids without repeats and blanks."""

    kind: Literal["ctc"]
    vocab_size: Count
    """How many logits, the blank's included."""
    blank_id: TokenId = 0
    """The id that stands for nothing."""
    bias: bool = True
    """Whether the linear map has a bias."""

    def check(self, stack: Readable) -> Findings:
        yield from _check_encoder(self.kind, stack)
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
        from seqspec.ops.ctc import CtcLoss

        labels = g.input(f"{prefix}labels", (output.shape[0], dim("label_length")), "int64", optional=True)
        return g.add(CtcLoss(self.blank_id), output, labels, reading.mask, hint=f"{prefix}loss")


def _check_table(tied: bool, vocab_size: int | None, stack: Readable) -> Findings:
    """What a head over a vocabulary asks of the stack's token table."""
    if tied and stack.tokens is None:
        yield Finding("SEQ212", ("tied",), "a tied head needs a stack that reads tokens", "write `tied: false`")
    elif tied and stack.table_width != stack.width:
        text = f"a tied head reads {stack.width} channels, but the token table has {stack.table_width}"
        yield Finding("SEQ211", ("tied",), text, "make the widths equal, or write `tied: false`")
    if tied and stack.tokens is not None and vocab_size not in (None, stack.vocab_size):
        text = f"vocab_size ({vocab_size}) is not the {stack.vocab_size} rows of the table the head is tied to"
        yield Finding("SEQ211", ("vocab_size",), text, "leave it out")
    if vocab_size is None and stack.vocab_size is None:
        yield Finding("SEQ102", (), "missing field `vocab_size`", "the stack reads no tokens that would say it")


def _check_encoder(kind: str, stack: Readable) -> Findings:
    if stack.stack != "encoder":
        yield Finding("SEQ227", ("kind",), f"`{kind}` reads an encoder, and here it would read the {stack.stack}")


class PooledHead(Head):
    """A head that may reduce time first."""

    pool: Pooling
    """`first`, `last`, `mean`, `max` over real tokens; `final_state` the last layer's h (backward: at the first)."""

    @property
    def pooled(self) -> Pooling:
        return self.pool

    def _padding(self, reading: Reading) -> Value | None:
        """The mask, where there is an output for every position."""
        return reading.mask if self.pool == "none" else None

    def check(self, stack: Readable) -> Findings:
        if self.pool == "final_state" and not stack.final_state:
            text = "`pool: final_state` needs a recurrent last layer"
            yield Finding("SEQ216", ("pool",), text, "choose `last` or `mean`")

    def reduce(self, g: Builder, reading: Reading) -> Value:
        """[B, T, D] -> [B, D], or as it is for `none`."""
        if self.pool == "none":
            return reading.x
        if self.pool not in reading.pooled:
            reading.pooled[self.pool] = self._reduce(g, reading)
        return reading.pooled[self.pool]

    def _reduce(self, g: Builder, reading: Reading) -> Value:
        if self.pool == "final_state":
            assert reading.final is not None
            h, select = reading.final
            return g.add(select, h, hint="pooled")
        assert self.pool != "none"
        from seqspec.ops.pool import Pool  # as in recurrent.py: models that pool nothing do not pay for it

        return g.add(Pool(self.pool, reading.stateful and self.pool == "last"), reading.x, reading.mask, hint="pooled")


class Classifier(PooledHead):
    """pooled x -> logits[B, classes], or [B, T, classes] with `pool: none`."""

    kind: Literal["classifier"]
    classes: Count
    """How many logits."""
    bias: bool = True
    """Whether the linear map has a bias."""

    def build(self, g: Builder, reading: Reading, name: str = "head") -> Value:
        x = self.reduce(g, reading)
        return g.add(Linear(width_of(x), self.classes, self.bias), x, name=name, hint="logits")

    @property
    def labels_positions(self) -> bool:
        return self.pool == "none"

    def loss(self, g: Builder, reading: Reading, output: Value, *, shift: bool, prefix: str = "") -> Value:
        labels = g.input(f"{prefix}labels", output.shape[:-1], "int64", optional=True)
        return g.add(CrossEntropy(), output, labels, self._padding(reading), hint=f"{prefix}loss")


class Regression(PooledHead):
    """pooled x -> numbers [B, size], or [B, T, size] with `pool: none`."""

    kind: Literal["regression"]
    size: Count
    """How many numbers."""
    bias: bool = True
    """Whether the linear map has a bias."""

    def build(self, g: Builder, reading: Reading, name: str = "head") -> Value:
        x = self.reduce(g, reading)
        return g.add(Linear(width_of(x), self.size, self.bias), x, name=name, hint="logits")

    @property
    def labels_positions(self) -> bool:
        return self.pool == "none"

    def loss(self, g: Builder, reading: Reading, output: Value, *, shift: bool, prefix: str = "") -> Value:
        labels = g.input(f"{prefix}labels", output.shape, optional=True)
        return g.add(MeanSquaredError(), output, labels, self._padding(reading), hint=f"{prefix}loss")


class Embedding(PooledHead):
    """pooled x itself: sentence embeddings."""

    kind: Literal["embedding"]
    normalize: bool = False
    """Whether each vector is divided by its length, so that a dot product is a cosine."""

    def build(self, g: Builder, reading: Reading, name: str = "head") -> Value:
        x = self.reduce(g, reading)
        if not self.normalize:
            return x
        from seqspec.ops.normalize import Normalize

        return g.add(Normalize(), x, hint="embedding")


AnyHead = Annotated[
    LanguageModel | MaskedLanguageModel | Ctc | Classifier | Regression | Embedding,
    ByKind,
]
