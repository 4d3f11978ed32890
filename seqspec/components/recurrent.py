"""Recurrent layers: plain RNN, LSTM and GRU, stacked, bidirectional, ragged, and with attention inside the step.

Their ops are imported where they are used, so that checking a model without recurrence does not pay for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from seqspec.components.attend import Attend
from seqspec.components.base import Component, Count, Finding, Findings, Inlet, Name, Rate, camel, width_of
from seqspec.components.bridge import Bridge, InitialState, Layers, Place, Source, Zeros, check_bridge, stack, starts
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.base import Op
from seqspec.ops.padding import ZeroPadding
from seqspec.ops.shape import Concat, Unsqueeze

Biases = Literal["none", "single", "double"]


class Memory(NamedTuple):
    """Another stack as a layer reads it: outputs [B, S, M], their padding, and the states a bridge may want."""

    x: Value
    mask: Value | None
    source: Source


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
    """Where h (and c) start: zeros, or a `bridge` from another stack."""
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
    def layers(self) -> Layers:
        return Layers(self.num_layers, 2 if self.bidirectional else 1, self.hidden_size, isinstance(self, LSTM))

    def width(self, memory: int | None) -> int:
        """Channels it puts out; `memory` are those of the stack that `attend` reads."""
        if self.attend and memory is not None:
            return self.attend.width(self.hidden_size, memory)
        return self.hidden_size * (2 if self.bidirectional and self.merge != "sum" else 1)

    def check(self) -> Findings:
        if self.dropout and self.num_layers == 1:
            text = f"dropout ({self.dropout:g}) acts between the layers of `num_layers`, and there is 1"
            yield Finding("SEQ209", ("dropout",), text, "raise `num_layers`, or leave `dropout` out")
        if self.merge and not self.bidirectional:
            text = "`merge` joins two directions, and there is one"
            yield Finding("SEQ232", ("merge",), text, "write `bidirectional: true`")
        if self.attend and (self.num_layers > 1 or self.bidirectional):
            yield Finding("SEQ225", ("attend",), "a cell with `attend` has one layer and one direction")

    def check_bridge(self, place: Place, source: Source) -> Findings:
        if self.bridge:
            yield from (f.under("initial_state") for f in check_bridge(self.bridge, place, source))

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
        *,
        stateful: bool,
        finals: bool,
    ) -> tuple[Value, ...]:
        """x[B, T, I] -> y[B, T, O] and, where `finals` are wanted, h[B, L·D, H] (and c): a call of one region."""
        b = g.child(camel(str(self.name)) + "Layer")
        inlet = Inlet(b)
        inner, inner_mask = inlet.take(x, "x"), inlet.take_optional(mask, "mask")
        initial = self._initial(b, inlet, memories, place)
        if self.attend:
            outputs = self._attending(
                b, inlet, inner, inner_mask, initial, memories[self.attend.from_], stateful, finals
            )
        else:
            parts = range(len(initial[0])) if initial else ()
            starts_BLH = [stack(b, [layer[part] for layer in initial]) for part in parts]
            hint = "y h c" if isinstance(self, LSTM) else "y h"
            op = self.op(width_of(x), stateful)
            outputs = b.add_many(op, inner, inner_mask, *starts_BLH, name=str(self.name), hint=hint)
            if self.merge == "sum":
                from seqspec.ops.state import MergeDirections

                outputs = (b.add(MergeDirections(), outputs[0], hint="y"), *outputs[1:])
        if not finals:
            return g.call_many(b.done(outputs[0]), scope, *inlet.arguments, hint="x")
        number = scope.rsplit(".", 1)[-1]
        hints = ["x", *(f"{letter}_{number}" for letter, _ in zip("hc", outputs[1:], strict=False))]
        return g.call_many(b.done(*outputs), scope, *inlet.arguments, hint=" ".join(hints))

    def _initial(
        self, b: Builder, inlet: Inlet, memories: Mapping[str, Memory], place: Place
    ) -> list[tuple[Value, ...]]:
        """(h,) or (h, c) of each layer, [B, H] each; empty for zeros."""
        bridge = self.bridge
        if bridge is None:
            return []
        memory = memories[bridge.from_]
        if bridge.state == "mean":
            from seqspec.ops.pool import Pool

            x, mask = inlet.take(memory.x, "source"), inlet.take_optional(memory.mask, "source_mask")
            source = memory.source._replace(mean=b.add(Pool("mean"), x, mask))
        else:
            parts = 2 if self.layers.cell else 1
            finals = [
                tuple(inlet.take(v, f"{'hc'[part]}_{n}") for part, v in enumerate(entry[:parts]))
                for n, entry in enumerate(memory.source.finals)
            ]
            source = memory.source._replace(finals=finals)
        return starts(b, bridge, place, source)

    def _attending(
        self,
        b: Builder,
        inlet: Inlet,
        x: Value,
        padding: Value | None,
        initial: list[tuple[Value, ...]],
        memory: Memory,
        stateful: bool,
        finals: bool,
    ) -> tuple[Value, ...]:
        """A loop over time whose step attends to `memory` and then moves the cell."""
        from seqspec.ops.loop import Loop
        from seqspec.ops.ragged import KeepAtPadding, RealSteps

        assert self.attend is not None
        attend = self.attend
        outer = inlet.take(memory.x, "memory"), inlet.take_optional(memory.mask, "memory_mask")
        keys, held, mask = attend.project(b, *outer, stateful)
        step = b.child(camel(str(self.name)) + "Step")
        names = ("h", "c") if self.layers.cell else ("h",)
        state = tuple(step.input(n, (x.shape[0], self.hidden_size)) for n in names)
        x_t, real = step.input("x", (x.shape[0], x.shape[-1])), step.input("real", (x.shape[0],), "bool")
        inside = Inlet(step)
        context = attend.context(
            step, state[0], inside.take(keys, "keys"), inside.take(held, "memory"), inside.take_optional(mask, "mask")
        )
        joined = step.add(Concat(), x_t, context)
        moved = step.add_many(self.cell(width_of(joined)), joined, *state, name=str(self.name), hint=" ".join(names))
        y = step.add(Concat(), moved[0], context) if attend.output == "concat" else moved[0]
        pairs = zip(names, moved, state, strict=True)
        kept = [step.add(KeepAtPadding(), real, new, old, hint=name) for name, new, old in pairs]
        begin = initial[0] if initial else ()
        starts_BH = (*begin, *[None] * (len(names) - len(begin)))
        loop = Loop(step.done(*kept, y), len(names), 2, stateful)
        steps = b.add(RealSteps(), padding, x, hint="real")
        *last, ys = b.add_many(loop, *starts_BH, x, steps, *inside.arguments, name="step", hint=" ".join([*names, "y"]))
        ys = b.add(ZeroPadding(), ys, padding, hint="y")
        return (ys, *(b.add(Unsqueeze(1), v, hint=n) for v, n in zip(last, names, strict=True))) if finals else (ys,)


class LSTM(Recurrent):
    """i, f, o = sigmoid(…), g = tanh(…); c' = f c + i g; h' = o tanh(c'). Gate rows i, f, g, o, as torch's."""

    kind: Literal["lstm"]
    forget_bias: float | None = None
    """What the forget gate's bias starts at, counted over both bias vectors; torch's random one by default."""

    def check(self) -> Findings:
        yield from super().check()
        if self.forget_bias is not None and self.bias == "none":
            yield Finding("SEQ232", ("forget_bias",), "`forget_bias` starts a bias, and `bias: none` leaves none")

    def op(self, width: int, stateful: bool) -> Op:
        from seqspec.ops.lstm import Lstm

        return Lstm(
            width, self.hidden_size, self.num_layers, self.bidirectional, self.bias, self.dropout or 0.0, stateful,
            forget_bias=self.forget_bias,
        )  # fmt: skip

    def cell(self, width: int) -> Op:
        from seqspec.ops.cells import LstmCell

        return LstmCell(width, self.hidden_size, self.bias, forget_bias=self.forget_bias)


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
