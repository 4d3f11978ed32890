"""Recurrent layers: plain RNN, LSTM and GRU, stacked, bidirectional, ragged, and with attention inside the step.

Their ops are imported where they are used, so that checking a model without recurrence does not pay for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from seqspec.components.attend import STEP, Attend, Looked
from seqspec.components.base import Component, Count, Finding, Findings, Inlet, Name, Rate, camel, width_of
from seqspec.components.bridge import (
    Bridge,
    Given,
    InitialState,
    Layers,
    Memory,
    Place,
    Source,
    Zeros,
    check_bridge,
    start,
)
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.base import Op
from seqspec.ops.padding import ZeroPadding
from seqspec.ops.shape import Concat, Unsqueeze

Biases = Literal["none", "single", "double"]


class Outputs(NamedTuple):
    """What a built layer gives: y[B, T, O]; where they are wanted h[B, L·D, O] (and c); an `attend`'s weights."""

    y: Value
    finals: tuple[Value, ...] = ()
    weights: Value | None = None


class Recurrent(Component):
    """What LSTM, GRU and RNN share. Weights under torch's names; outputs at padding are zeros."""

    name: Name | None = None
    """Names its parameters; its kind by default."""
    repeat: Count = 1
    """How many such layers follow each other."""
    hidden_size: Count
    """Channels of h, in each direction."""
    num_layers: Count = 1
    """Layers of one stack, as in torch."""
    bidirectional: bool = False
    """Whether a second pass runs from the end, starting at the last real token."""
    merge: Literal["concat", "sum"] | None = None
    """How the two directions' outputs become one: `concat` (torch's, forward first) by default."""
    dropout: Rate | None = None
    """Between its layers; never behind the last, never inherited."""
    bias: Biases = "double"
    """No bias, one per gate, or torch's two."""
    initial_state: InitialState | None = None
    """Where h (and c) start: `zeros`, `learned`, `given`, or a `bridge` from another stack."""
    attend: Attend | None = None
    """Attention over another stack inside every step."""

    def resolved(self) -> Recurrent:
        """Every default filled in."""
        merge = (self.merge or "concat") if self.bidirectional else self.merge
        return self.model_copy(
            update={
                "name": self.name or self.kind_,
                "merge": merge,
                "initial_state": self.initial_state or Zeros.plain(),
                "attend": self.attend.resolved(self.hidden_size) if self.attend else None,
            }
        )

    @property
    def kind_(self) -> str:
        return str(getattr(self, "kind"))  # noqa: B009 - each subclass declares its own `kind`

    @property
    def bridge(self) -> Bridge | None:
        return self.initial_state if isinstance(self.initial_state, Bridge) else None

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of h, and of c where there is one."""
        return (self.hidden_size,)

    @property
    def layers(self) -> Layers:
        return Layers(self.num_layers, 2 if self.bidirectional else 1, self.widths)

    @property
    def given(self) -> dict[str, tuple[int, int]]:
        """What the caller may give it to start from, [L·D, H] each."""
        if not isinstance(self.initial_state, Given):
            return {}
        return {name: (self.layers.rows, width) for name, width in zip("hc", self.widths, strict=False)}

    def width(self, memory: int | None) -> int:
        """Channels it puts out; `memory` are those of the stack that `attend` reads."""
        if self.attend and memory is not None:
            return self.attend.width(self.widths[0], memory)
        return self.widths[0] * (2 if self.bidirectional and self.merge != "sum" else 1)

    def check(self) -> Findings:
        if self.dropout and self.num_layers == 1:
            text = f"dropout ({self.dropout:g}) acts between the layers of `num_layers`, and there is 1"
            yield Finding("SEQ209", ("dropout",), text, "raise `num_layers`, or leave `dropout` out")
        if self.merge and not self.bidirectional:
            text = "`merge` joins two directions, and there is one"
            yield Finding("SEQ232", ("merge",), text, "write `bidirectional: true`")
        if self.attend and (self.num_layers > 1 or self.bidirectional):
            yield Finding("SEQ225", ("attend",), "a cell with `attend` has one layer and one direction")

    def check_reads(self, place: Place, sources: Mapping[str, Source]) -> Findings:
        """Whether what it reads of other stacks fits; of those that are not there something else is said."""
        if self.bridge and self.bridge.from_ in sources:
            found = check_bridge(self.bridge, place, sources[self.bridge.from_])
            yield from (f.under("initial_state") for f in found)
        if self.attend:
            memory = sources.get(self.attend.from_)
            found = self.attend.check(self.widths[0], memory.width if memory else None)
            yield from (f.under("attend") for f in found)

    def op(self, width: int, stateful: bool) -> Op:
        """The whole layer as one op."""
        raise NotImplementedError

    def cell(self, width: int) -> Op:
        """One step, for a loop."""
        raise NotImplementedError

    def build(
        self,
        g: Builder,
        scope: str,
        x: Value,
        mask: Value | None,
        memories: Mapping[str, Memory],
        place: Place,
        given: Sequence[Value],
        *,
        stateful: bool,
        finals: bool,
    ) -> Outputs:
        """A call of one region. `given` are what `self.given` says, and may be None at run time."""
        b = g.child(camel(str(self.name)) + "Layer")
        inlet = Inlet(b)
        inner, inner_mask = inlet.take(x, "x"), inlet.take_optional(mask, "mask")
        begin = start(b, inlet, inner, self.initial_state, place, memories, given, alone=self.attend is not None)
        if self.attend:
            made = self._attending(b, inlet, inner, inner_mask, begin, memories[self.attend.from_], stateful, finals)
        else:
            hint = "y h c" if len(self.widths) > 1 else "y h"
            op = self.op(width_of(x), stateful)
            y, *last = b.add_many(op, inner, inner_mask, *begin, name=str(self.name), hint=hint)
            if self.merge == "sum":
                from seqspec.ops.state import MergeDirections

                y = b.add(MergeDirections(), y, hint="y")
            made = Outputs(y, tuple(last))
        return self._called(g, b, scope, inlet, made if finals else made._replace(finals=()))

    def _called(self, g: Builder, b: Builder, scope: str, inlet: Inlet, made: Outputs) -> Outputs:
        number = scope.rsplit(".", 1)[-1]
        more = [] if made.weights is None else [made.weights]
        hints = ["x", *(f"{letter}_{number}" for letter, _ in zip("hc", made.finals, strict=False))]
        hints += [f"weights_{number}" for _ in more]
        region = b.done(made.y, *made.finals, *more)
        y, *rest = g.call_many(region, scope, *inlet.arguments, hint=" ".join(hints))
        return Outputs(y, tuple(rest[: len(made.finals)]), rest[-1] if more else None)

    def _attending(
        self,
        b: Builder,
        inlet: Inlet,
        x: Value,
        padding: Value | None,
        begin: Sequence[Value],
        memory: Memory,
        stateful: bool,
        finals: bool,
    ) -> Outputs:
        """A loop over time; see `_step`."""
        from seqspec.ops.loop import Loop
        from seqspec.ops.ragged import RealSteps

        assert self.attend is not None
        outer = inlet.take(memory.x, "memory"), inlet.take_optional(memory.mask, "memory_mask")
        looked = self.attend.look(b, *outer, self.widths[0], stateful)
        step = b.child(camel(str(self.name)) + "Step")
        carried = {"h": self.widths[0]} | ({"c": self.widths[1]} if len(self.widths) > 1 else {})
        if self.attend.input_feeding:
            carried["output"] = self.attend.width(self.widths[0], width_of(memory.x))
        state = {name: step.input(name, (x.shape[0], width)) for name, width in carried.items()}
        x_t, real = step.input("x", (x.shape[0], x.shape[-1])), step.input("real", (x.shape[0],), "bool")
        inside = Inlet(step)
        ys = self._step(step, state, x_t, real, looked.within(inside))
        loop = Loop(step.done(*ys), len(carried), 2, stateful)
        starting = (*begin, *[None] * (len(carried) - len(begin)))
        steps = b.add(RealSteps(), padding, x, hint="real")
        hint = " ".join([*carried, "y", "weights"][: len(ys)])
        outputs = b.add_many(loop, *starting, x, steps, *inside.arguments, name=STEP, hint=hint)
        y, *more = (b.add(ZeroPadding(), v, padding, hint=v.hint) for v in outputs[len(carried) :])
        last = list(zip(outputs[: len(self.widths)], carried, strict=False)) if finals else []
        return Outputs(y, tuple(b.add(Unsqueeze(1), v, hint=n) for v, n in last), more[0] if more else None)

    def _step(self, b: Builder, state: Mapping[str, Value], x: Value, real: Value, looked: Looked) -> tuple[Value, ...]:
        """The next state, what is put out, and the weights where they are wanted.

        A state stands still at padding. The h before the step asks, and then the cell moves; or the other way round.
        """
        from seqspec.ops.ragged import KeepAtPadding

        attend = self.attend
        assert attend is not None
        names = ("h", "c")[: len(self.widths)]
        own = [state[name] for name in names]
        if attend.query == "previous":
            context, weights = attend.context(b, own[0], looked)
            x = b.add(Concat(), x, context)
        elif attend.input_feeding:
            x = b.add(Concat(), x, state["output"])
        moved = b.add_many(self.cell(width_of(x)), x, *own, name=str(self.name), hint=" ".join(names))
        if attend.query == "current":
            context, weights = attend.context(b, moved[0], looked)
        y = attend.put_out(b, moved[0], context)
        after = dict(zip(names, moved, strict=True)) | {"output": y}
        kept = [b.add(KeepAtPadding(), real, after[name], old, hint=name) for name, old in state.items()]
        return (*kept, y, *([weights] if attend.return_weights else []))


class LSTM(Recurrent):
    """i, f, o = sigmoid(…), g = tanh(…); c' = f c + i g; h' = o tanh(c'). Gate rows i, f, g, o, as torch's."""

    kind: Literal["lstm"]
    forget_bias: float | None = None
    """What the forget gate's bias starts at, counted over both bias vectors; torch's random one by default."""
    peepholes: bool = False
    """Whether the gates see the cell: i and f add p ⊙ c, o adds p ⊙ c' (Gers et al. 2002)."""
    projection_size: Count | None = None
    """Channels of h, which is then R (o tanh(c')): torch's proj_size. hidden_size, without R, by default."""

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.projection_size or self.hidden_size, self.hidden_size)

    def check(self) -> Findings:
        yield from super().check()
        if self.forget_bias is not None and self.bias == "none":
            yield Finding("SEQ232", ("forget_bias",), "`forget_bias` starts a bias, and `bias: none` leaves none")

    def op(self, width: int, stateful: bool) -> Op:
        from seqspec.ops.lstm import Lstm

        return Lstm(
            width, self.hidden_size, self.num_layers, self.bidirectional, self.bias, self.dropout or 0.0, stateful,
            forget_bias=self.forget_bias, peepholes=self.peepholes, projection_size=self.projection_size,
        )  # fmt: skip

    def cell(self, width: int) -> Op:
        from seqspec.ops.cells import LstmCell

        return LstmCell(
            width, self.hidden_size, self.bias,
            forget_bias=self.forget_bias, peepholes=self.peepholes, projection_size=self.projection_size,
        )  # fmt: skip


class GRU(Recurrent):
    """r, z = sigmoid(…); n = tanh(W x + r (U h)); h' = (1 - z) n + z h. Gate rows r, z, n, as torch stores them."""

    kind: Literal["gru"]
    reset: Literal["before", "after"] = "after"
    """The reset gate acts on h before the recurrent matrix (Cho et al. 2014), or behind it (cuDNN, torch)."""
    update: Literal["keep", "write"] = "keep"
    """What z means: `keep` h' = (1 - z) n + z h (torch), `write` h' = (1 - z) h + z n (Bahdanau et al. 2015)."""

    def op(self, width: int, stateful: bool) -> Op:
        from seqspec.ops.gru import Gru

        return Gru(
            width, self.hidden_size, self.num_layers, self.bidirectional, self.bias, self.dropout or 0.0, stateful,
            reset=self.reset, update=self.update,
        )  # fmt: skip

    def cell(self, width: int) -> Op:
        from seqspec.ops.cells import GruCell

        return GruCell(width, self.hidden_size, self.bias, reset=self.reset, update=self.update)


class RNN(Recurrent):
    """h' = activation(W x + U h + b): Elman's network."""

    kind: Literal["rnn"]
    activation: Literal["tanh", "relu", "sigmoid"] = "tanh"
    """What h' passes through."""

    def op(self, width: int, stateful: bool) -> Op:
        from seqspec.ops.rnn import Rnn

        return Rnn(
            width, self.hidden_size, self.num_layers, self.bidirectional, self.bias, self.dropout or 0.0, stateful,
            activation=self.activation,
        )  # fmt: skip

    def cell(self, width: int) -> Op:
        from seqspec.ops.cells import RnnCell

        return RnnCell(width, self.hidden_size, self.bias, activation=self.activation)


RecurrentLayer = Annotated[LSTM | GRU | RNN, Field(discriminator="kind")]
