"""Attention inside a recurrent step: the cell attends to another stack before or after it updates its state."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from seqspec.components.base import Component, Count, Finding, Findings, Inlet, Width, Word, width_of
from seqspec.components.family import Family
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Param, Value
from seqspec.ops.cache import Hold
from seqspec.ops.elementwise import Add, Unary
from seqspec.ops.linear import Linear, PartLinear, TiedPartLinear
from seqspec.ops.shape import Concat, Squeeze, Unsqueeze

STEP = "step"
"""The name of the loop, under which the parameters of a step are."""


class Looked(NamedTuple):
    """What every step reads of the other stack. Without keys, the memory itself is compared with the query."""

    keys: Value | None
    memory: Value
    mask: Value | None
    places: Value | None = None
    lengths: Value | None = None

    def within(self, inlet: Inlet) -> Looked:
        """The same inside a step."""
        return Looked(*(inlet.take_optional(value, name) for name, value in self._asdict().items()))  # type: ignore[arg-type]


class AlignmentWindow(Family):
    """Where the weights of a step may be other than zero."""

    kinds: ClassVar = {"local_p": "attend:LocalP"}

    @abstractmethod
    def weights(self, b: Builder, h: Value, scores: Value, looked: Looked) -> Value:
        """h[B, H], scores[B, S] -> weights[B, S]"""


class LocalP(AlignmentWindow):
    """A window around a predicted position p = S · sigmoid(v · tanh(W h)), weighted by a Gaussian.

    The softmax over |s − p| ≤ size is multiplied by exp(−(s − p)² / 2σ²), σ = size / 2 (Luong et al. 2015). Positions s
    count real tokens from 0; S is the number of real tokens of a row.
    """

    kind: Literal["local_p"]
    size: Count
    """Half the width of the window: D in the paper."""

    def weights(self, b: Builder, h: Value, scores: Value, looked: Looked) -> Value:
        from seqspec.ops.alignment import LocalAlignment  # not at the top: few models need it

        width = width_of(h)
        hidden = b.add(Unary("tanh"), b.add(Linear(width, width, False), h, name="position_proj"))
        logit = b.add(Linear(width, 1, False), hidden, name="position_score_proj")
        center = b.add(Unary("sigmoid"), logit, hint="center")
        align = LocalAlignment(self.size)
        return b.add(align, scores, center, looked.places, looked.lengths, looked.mask, hint="weights")


class Attend(Component):
    """weights = softmax of score(h, m) over the other stack's real tokens; context = Σ weight · m.

    `query: previous`: the old h is the query, and the cell reads [x; context] (Bahdanau et al. 2015).
    `query: current`: the cell reads x, and its new h is the query (Luong et al. 2015).
    """

    from_: Word = Field(alias="from")
    """The stack that it attends to."""
    score: Literal["additive", "dot", "general", "concat"] = "additive"
    """`additive` v · tanh(W h + U m), `dot` h · m, `general` h · W m, `concat` v · tanh(W [h; m])."""
    d_attention: Width | None = None
    """Width of the hidden layer of `additive` and `concat` scores; hidden_size by default."""
    query: Literal["previous", "current"] = "previous"
    """Which h is the query: that before the step, or that after it."""
    output: Literal["hidden", "concat", "tanh"] | None = None
    """The layer's output: h, [h; context] (default for `previous`), or tanh(W [context; h]) (default for `current`)."""
    input_feeding: bool = False
    """Whether the cell reads [x; the output of the step before], which is zeros at first."""
    window: AlignmentWindow | None = None
    """Where the weights may be other than zero; everywhere by default."""
    return_weights: bool = False
    """Whether the weights are an output of the model too: `attentions.N` [B, T, S], zeros at padding."""

    @property
    def parts(self) -> frozenset[str]:
        """Names of the maps in a step; those of settings left out are kept free."""
        maps = ("query", "score", "concat", "output", "position", "position_score")
        return frozenset(f"{name}_proj" for name in maps)

    def resolved(self, hidden_size: int) -> Attend:
        """Every default filled in, for a cell of this hidden size."""
        compared = self.score in ("additive", "concat")
        output = self.output or ("concat" if self.query == "previous" else "tanh")
        width = self.d_attention or (hidden_size if compared else None)
        return self.model_copy(update={"d_attention": width, "output": output})

    @property
    def is_seen_in_state(self) -> bool:
        """Whether something of it is left where the layer's final state alone is read."""
        shown = self.return_weights and self.output == "concat"
        return self.query == "previous" or self.input_feeding or shown

    def width(self, hidden: int, memory: int) -> int:
        """Channels of the layer's output."""
        return hidden + memory if self.output == "concat" else hidden

    def check(self, hidden: int, memory: int | None) -> Findings:
        """Which settings do not go together; `memory` is the width of the other stack, if that is known."""
        if self.d_attention and self.score in ("dot", "general"):
            text = f"`score: {self.score}` compares without a width of its own"
            yield Finding("SEQ226", ("d_attention",), text, "leave `d_attention` out")
        if self.score == "dot" and memory not in (None, hidden):
            text = f"`score: dot` multiplies a query of {hidden} channels with a memory of {memory}"
            yield Finding("SEQ226", ("score",), text, "make the widths equal, or write `score: general`")
        if self.query == "previous":
            hint = "write `query: current`"
            if self.input_feeding:
                yield Finding("SEQ226", ("input_feeding",), "`input_feeding` belongs to `query: current`", hint)
            if self.output == "tanh":
                yield Finding("SEQ226", ("output",), "`output: tanh` belongs to `query: current`", hint)
        elif self.output == "hidden":
            text = "with `query: current` the context comes after h, so that `output: hidden` leaves it unread"
            yield Finding("SEQ226", ("output",), text, "write `output: tanh` or `output: concat`")

    # ---- building: what every step reads, computed once --------------------------------------------------------

    def look(self, b: Builder, memory: Value, mask: Value | None, hidden: int, stateful: bool) -> Looked:
        """memory[B, S, M] and its mask, with keys [B, S, A] and places."""
        keys = self._keys(b, memory, hidden)
        if stateful:
            keys = None if keys is None else b.add(Hold("keys"), keys, hint="keys")
            memory = b.add(Hold("memory"), memory, hint="memory")
        if self.window is None:
            return Looked(keys, memory, mask)
        from seqspec.ops.alignment import RealPlaces

        return Looked(keys, memory, mask, *b.add_many(RealPlaces(), memory, mask, hint="places lengths"))

    def _keys(self, b: Builder, memory: Value, hidden: int) -> Value | None:
        if self.score == "dot":
            return None
        own, width = width_of(memory), int(self.d_attention or 0)
        if self.score == "concat":
            weight = Param(f"{STEP}.concat_proj.weight", (width, hidden + own))
            return b.add(TiedPartLinear(hidden), memory, weight)
        return b.add(Linear(own, hidden if self.score == "general" else width, False), memory, name="key_proj")

    # ---- building: one step ------------------------------------------------------------------------------------

    def context(self, b: Builder, h: Value, looked: Looked) -> tuple[Value, Value]:
        """h[B, H] -> context[B, M], weights[B, S]"""
        from seqspec.ops.attend import MaskedSoftmax, WeightedSum

        scores = self._scores(b, h, looked)
        if self.window is None:
            weights = b.add(MaskedSoftmax(), scores, looked.mask, hint="weights")
        else:
            weights = self.window.weights(b, h, scores, looked)
        return b.add(WeightedSum(), weights, looked.memory, hint="context"), weights

    def _scores(self, b: Builder, h: Value, looked: Looked) -> Value:
        """[B, S]"""
        if self.score in ("dot", "general"):
            from seqspec.ops.attend import DotScores

            keys = looked.memory if looked.keys is None else looked.keys
            return b.add(DotScores(), h, keys, hint="scores")
        width, hidden = int(self.d_attention or 0), width_of(h)
        if self.score == "concat":
            query = b.add(PartLinear(hidden, width_of(looked.memory), width), h, name="concat_proj")
        else:
            query = b.add(Linear(hidden, width, False), h, name="query_proj")
        mixed = b.add(Unary("tanh"), b.add(Add(), b.add(Unsqueeze(1), query), looked.keys))
        return b.add(Squeeze(-1), b.add(Linear(width, 1, False), mixed, name="score_proj"), hint="scores")

    def put_out(self, b: Builder, h: Value, context: Value) -> Value:
        """The layer's output."""
        if self.output == "hidden":
            return h
        if self.output == "concat":
            return b.add(Concat(), h, context)
        hidden = width_of(h)
        joined = b.add(Concat(), context, h)
        return b.add(Unary("tanh"), b.add(Linear(width_of(joined), hidden, False), joined, name="output_proj"))
