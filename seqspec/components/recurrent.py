"""What recurrent layers share: stacking, directions, initial states, and attention inside the step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Literal, Self

from seqspec.components.attend import Attend
from seqspec.components.base import Count, Finding, Findings, Inlet, Name, Path, Rate, Width, camel, width_of
from seqspec.components.bridge import Bridge, Given, InitialState, Learned, Zeros, check_bridge, start
from seqspec.components.inherited import Inheritance
from seqspec.components.layers import BareLayer, Beside, Outputs
from seqspec.components.states import Layers, Place, Source
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.base import Op

Biases = Literal["none", "single", "double"]


class Recurrent(BareLayer):
    """What LSTM, GRU and RNN share. Weights have torch's names; outputs at padding are zeros."""

    width_key = "hidden_size"

    name: Name | None = None
    """Names its parameters; its kind by default."""
    repeat: Count = 1
    """How many such layers follow one another."""
    hidden_size: Width
    """Channels of h in each direction."""
    num_layers: Count = 1
    """Stacked layers, as torch's num_layers."""
    bidirectional: bool = False
    """Whether a second pass runs backwards, from the last real token."""
    merge: Literal["concat", "sum"] | None = None
    """How the outputs of two directions are joined: `concat` by default, forward first as in torch."""
    dropout: Rate | None = None
    """Dropout between its `num_layers`; not after the last, and not inherited from the stack."""
    bias: Biases = "double"
    """No bias, one per gate, or two as in torch."""
    initial_state: InitialState | None = None
    """Where h (and c) start: `zeros`, `learned`, `given`, or a `bridge` from another stack."""
    attend: Attend | None = None
    """Attention over another stack in every step."""

    def resolved(self, said: Inheritance) -> Self:
        merge = (self.merge or "concat") if self.bidirectional else self.merge
        return self.model_copy(
            update={
                "name": self.called,
                "merge": merge,
                "initial_state": self.initial_state or Zeros.plain(),
                "attend": self.attend.resolved(self.hidden_size) if self.attend else None,
            }
        )

    @property
    def recurrent(self) -> Recurrent:
        return self

    @property
    def count(self) -> int:
        return self.num_layers

    @property
    def looks_ahead(self) -> bool:
        return self.bidirectional

    @property
    def attends(self) -> str | None:
        return self.attend.from_ if self.attend else None

    @property
    def averages(self) -> str | None:
        return self.bridge.from_ if self.bridge and self.bridge.state == "mean" else None

    def reads(self) -> Iterator[tuple[Path, str]]:
        if self.bridge:
            yield ("initial_state", "from"), self.bridge.from_
        if self.attend:
            yield ("attend", "from"), self.attend.from_

    @property
    def bridge(self) -> Bridge | None:
        """Its initial state, if that is a bridge."""
        return self.initial_state if isinstance(self.initial_state, Bridge) else None

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of h, and of c if there is one."""
        return (self.hidden_size,)

    @property
    def layers(self) -> Layers:
        return Layers(self.num_layers, 2 if self.bidirectional else 1, self.widths)

    @property
    def given(self) -> dict[str, tuple[int, int]]:
        if not isinstance(self.initial_state, Given):
            return {}
        return {name: (self.layers.rows, width) for name, width in zip("hc", self.widths, strict=False)}

    def width(self, memory: int | None) -> int:
        if self.attend and memory is not None:
            return self.attend.width(self.widths[0], memory)
        return self.widths[0] * (2 if self.bidirectional and self.merge != "sum" else 1)

    @property
    def parts(self) -> frozenset[str]:
        """Names of parameters and maps that stand beside its own."""
        starts = frozenset({"h0", "c0"}) if isinstance(self.initial_state, Learned) else frozenset[str]()
        return starts | self.attend.parts if self.attend else starts

    def check(self) -> Findings:
        if self.called in self.parts:
            text = f"the name `{self.called}` is taken, by a part of the layer"
            yield Finding("SEQ223", ("name",), text)
        if self.dropout and self.num_layers == 1:
            text = f"dropout ({self.dropout:g}) acts between the layers of `num_layers`, and there is 1"
            yield Finding("SEQ209", ("dropout",), text, "raise `num_layers`, or leave `dropout` out")
        if self.merge and not self.bidirectional:
            text = "`merge` joins two directions, and there is one"
            yield Finding("SEQ232", ("merge",), text, "write `bidirectional: true`")
        if self.attend and (self.num_layers > 1 or self.bidirectional):
            yield Finding("SEQ225", ("attend",), "a cell with `attend` has one layer and one direction")

    def check_causal(self, stack: str) -> Findings:
        if self.bidirectional:
            text = f"a bidirectional layer reads the future, and the {stack} is causal"
            yield Finding("SEQ222", ("bidirectional",), text, "write `causal: false` on the stack if that is meant")

    def check_reads(self, place: Place, sources: Mapping[str, Source]) -> Findings:
        if self.bridge and self.bridge.from_ in sources:
            found = check_bridge(self.bridge, place, sources[self.bridge.from_])
            yield from (f.under("initial_state") for f in found)
        if self.attend:
            memory = sources.get(self.attend.from_)
            found = self.attend.check(self.widths[0], memory.width if memory else None)
            yield from (f.under("attend") for f in found)

    @abstractmethod
    def op(self, width: int, stateful: bool) -> Op:
        """The whole layer as one op."""

    @abstractmethod
    def cell(self, width: int) -> Op:
        """One step of it, for a loop."""

    def build(self, g: Builder, scope: str, x: Value, beside: Beside) -> Outputs:
        b = g.child(camel(self.called) + "Layer")
        inlet = Inlet(b)
        inner, inner_mask = inlet.take(x, "x"), inlet.take_optional(beside.mask, "mask")
        alone, memories = self.attend is not None, beside.memories
        begin = start(b, inlet, inner, self.initial_state, beside.place, memories, beside.given, alone=alone)
        if self.attend:
            from seqspec.components.stepwise import attending  # not at the top: few layers need it

            made = attending(self, self.attend, b, inlet, inner, inner_mask, begin, beside)
        else:
            hint = "y h c" if len(self.widths) > 1 else "y h"
            op = self.op(width_of(x), beside.stateful)
            y, *last = b.add_many(op, inner, inner_mask, *begin, name=self.called, hint=hint)
            if self.merge == "sum":
                from seqspec.ops.state import MergeDirections

                y = b.add(MergeDirections(), y, hint="y")
            made = Outputs(y, tuple(last))
        return self._call(g, b, scope, inlet, made if beside.finals else made._replace(finals=()))

    def _call(self, g: Builder, b: Builder, scope: str, inlet: Inlet, made: Outputs) -> Outputs:
        number = scope.rsplit(".", 1)[-1]
        more = [] if made.weights is None else [made.weights]
        hints = ["x", *(f"{letter}_{number}" for letter, _ in zip("hc", made.finals, strict=False))]
        hints += [f"weights_{number}" for _ in more]
        region = b.done(made.y, *made.finals, *more)
        y, *rest = g.call_many(region, scope, *inlet.arguments, hint=" ".join(hints))
        return Outputs(y, tuple(rest[: len(made.finals)]), rest[-1] if more else None)
