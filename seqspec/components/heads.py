"""Heads: the output layers on the last stack."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

from seqspec.components.base import Finding, Findings
from seqspec.components.family import Family
from seqspec.components.norms import Norm
from seqspec.components.tokens import Tokens
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value

if TYPE_CHECKING:
    from seqspec.ops.state import SelectState

Pooling = Literal["none", "first", "last", "mean", "max", "final_state"]


@dataclass
class Reading:
    """What heads read: the stack's outputs, padding, the last layer's final h, and the token table to tie to."""

    x: Value
    mask: Value | None = None
    final: tuple[Value, SelectState] | None = None  # the last layer's h, and the op that selects from it
    table: Value | None = None
    stateful: bool = False  # whether the stack may run in chunks, so that `last` must remember
    pooled: dict[str, Value] = field(default_factory=dict)  # what another head has pooled already, by the kind of pool


class Readable(NamedTuple):
    """What the checks of heads need to know of the stack."""

    stack: str
    width: int
    tokens: Tokens | None
    table_width: int | None
    vocab_size: int | None
    final_state: bool


class Head(Family):
    """An output layer on the last stack."""

    kinds: ClassVar = {
        "lm": "language_model:LanguageModel",
        "masked_lm": "masked_language_model:MaskedLanguageModel",
        "ctc": "ctc:Ctc",
        "classifier": "pooled_heads:Classifier",
        "regression": "pooled_heads:Regression",
        "embedding": "pooled_heads:Embedding",
    }

    def check(self, stack: Readable) -> Findings:
        """What is wrong with it on this stack."""
        yield from ()

    def resolved(self, vocab_size: int | None, norm: Norm | None) -> Self:
        """Every default filled in; `vocab_size` and `norm` are those of the stack."""
        return self

    @property
    def pooled(self) -> Pooling:
        """How it pools over time."""
        return "none"

    @property
    def labels_positions(self) -> bool:
        """Whether there is a label for every position, so that the loss needs to know which are real."""
        return False

    @abstractmethod
    def build(self, g: Builder, reading: Reading, name: str = "head") -> Value:
        """Its output. `name` is the name of its parameters."""

    def loss(self, g: Builder, reading: Reading, output: Value, *, shift: bool, prefix: str = "") -> Value | None:
        """The loss of its output with the input `labels`; None for a head without a loss.

        `shift`: the stack is causal, so the labels can be its own next tokens. With several heads, `prefix` goes before
        the names `labels` and `loss`.
        """
        return None


def check_table(tied: bool, vocab_size: int | None, stack: Readable) -> Findings:
    """Whether a head over a vocabulary fits the stack's token table."""
    if tied and stack.tokens is None:
        yield Finding("SEQ212", ("tied",), "a tied head needs a stack that reads tokens", "write `tied: false`")
    elif tied and stack.table_width and stack.table_width != stack.width:  # a width that nobody wrote is SEQ220
        text = f"a tied head reads {stack.width} channels, but the token table has {stack.table_width}"
        yield Finding("SEQ211", ("tied",), text, "make the widths equal, or write `tied: false`")
    if tied and stack.tokens is not None and vocab_size not in (None, stack.vocab_size):
        text = f"vocab_size ({vocab_size}) is not the {stack.vocab_size} rows of the table the head is tied to"
        yield Finding("SEQ211", ("vocab_size",), text, "leave it out")
    if vocab_size is None and stack.vocab_size is None:
        yield Finding("SEQ102", (), "missing field `vocab_size`", "the stack reads no tokens that would say it")


def check_encoder(kind: str, stack: Readable) -> Findings:
    """Whether the stack is an encoder, for a head that needs the whole input at once."""
    if stack.stack != "encoder":
        yield Finding("SEQ227", ("kind",), f"`{kind}` reads an encoder, and here it would read the {stack.stack}")
