"""Attention inside a recurrent step: the decoder looks at another stack before it moves on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seqspec.components.base import Component, Count, Word, width_of
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.cache import Hold
from seqspec.ops.elementwise import Add, Unary
from seqspec.ops.linear import Linear
from seqspec.ops.shape import Squeeze, Unsqueeze


class Attend(Component):
    """score(h, m) = v · tanh(W h + U m), softmax over the other stack's real tokens, context = Σ weight · m.

    Bahdanau, Cho and Bengio 2015: the previous h asks, and the cell moves on [x; context].
    """

    from_: Word = Field(alias="from")
    """The stack it reads."""
    score: Literal["additive"] = "additive"
    """How query and memory are compared."""
    d_attention: Count | None = None
    """Width of the comparison; hidden_size by default."""
    query: Literal["previous"] = "previous"
    """Which state asks: the one before the step."""
    output: Literal["hidden", "concat"] = "concat"
    """What the layer puts out: h, or [h; context]."""

    def resolved(self, hidden_size: int) -> Attend:
        return self.model_copy(update={"d_attention": self.d_attention or hidden_size})

    def width(self, hidden_size: int, memory: int) -> int:
        """Channels that the layer puts out."""
        return hidden_size + memory if self.output == "concat" else hidden_size

    def project(
        self, b: Builder, memory: Value, mask: Value | None, stateful: bool
    ) -> tuple[Value, Value, Value | None]:
        """Keys[B, S, A], memory[B, S, M] and its mask, computed once."""
        keys = b.add(Linear(width_of(memory), int(self.d_attention or 0), False), memory, name="key_proj")
        if stateful:
            keys = b.add(Hold("keys"), keys, hint="keys")
            memory = b.add(Hold("memory"), memory, hint="memory")
        return keys, memory, mask

    def context(self, b: Builder, h: Value, keys: Value, memory: Value, mask: Value | None) -> Value:
        """h[B, H] -> context[B, M]"""
        from seqspec.ops.attend import MaskedSoftmax, WeightedSum  # here for the reason given in recurrent.py

        width = int(self.d_attention or 0)
        query = b.add(Unsqueeze(1), b.add(Linear(width_of(h), width, False), h, name="query_proj"))
        mixed = b.add(Unary("tanh"), b.add(Add(), query, keys))
        scores = b.add(Squeeze(-1), b.add(Linear(width, 1, False), mixed, name="score_proj"), hint="scores")
        return b.add(WeightedSum(), b.add(MaskedSoftmax(), scores, mask, hint="weights"), memory, hint="context")
