"""Masks given at run time: a prefix, documents, or any mask."""

from __future__ import annotations

from typing import Literal

from seqspec.components.base import ArgumentName, Finding, Findings
from seqspec.components.masks import TAKEN, Mask
from seqspec.ops import masks as ops

_TAKEN_TOO = {"encoder_attention_mask", "logits", "embedding", "last_hidden_state"}


class Prefix(Mask):
    """Every position sees the first `prefix_length` positions, a number per row given at run time, 0 by default.

    `any: [causal, prefix]` makes a prefix language model: attention within the prefix is bidirectional.
    """

    kind: Literal["prefix"]

    def to_op(self) -> ops.Mask:
        return ops.Prefix()


class Documents(Mask):
    """A position sees its own document: the positions with its number in `document_ids`, given at run time.

    Tokens of equal numbers are one document. Positions restart at 0 in each.
    """

    kind: Literal["documents"]

    def to_op(self) -> ops.Mask:
        return ops.Documents()


class Given(Mask):
    """A mask given at run time as an input of this name, [B, T, S]: 1 or true where a query may attend."""

    kind: Literal["given"]
    name: ArgumentName
    """The input's name."""

    def to_op(self) -> ops.Mask:
        return ops.Given(self.name)

    def check(self) -> Findings:
        if self.name in TAKEN | _TAKEN_TOO or self.name.startswith(("decoder_", "initial_state_")):
            text = f"`{self.name}` is the name of another input, or of an output"
            yield Finding("SEQ107", ("name",), text, "choose a name of your own")
