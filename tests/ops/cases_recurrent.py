"""Rows of the op table for everything recurrent, with padding on the right, on the left, in holes, or nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from harness import Array, Input, Row, single

from seqspec.graph.builder import Builder
from seqspec.graph.dims import BATCH, ENCODER_TIME, PAST, TIME, dim
from seqspec.graph.ir import Region
from seqspec.ops.alignment import LocalAlignment, RealPlaces
from seqspec.ops.attend import DotScores, MaskedSoftmax, WeightedSum
from seqspec.ops.cells import Cell, GruCell, LstmCell, RnnCell
from seqspec.ops.elementwise import Add
from seqspec.ops.gru import Gru
from seqspec.ops.initial_state import GivenState, LearnedState
from seqspec.ops.linear import Linear
from seqspec.ops.loop import Loop
from seqspec.ops.lstm import Lstm
from seqspec.ops.open_cell import InputGates, OpenCell
from seqspec.ops.ragged import KeepAtPadding, RealSteps
from seqspec.ops.recurrent import Recurrent
from seqspec.ops.rnn import Rnn
from seqspec.ops.scanned import Scanned
from seqspec.ops.shape import Concat
from seqspec.ops.state import MergeDirections, SelectState, StackStates

B, T, P, S = dim(BATCH), dim(TIME), dim(PAST), dim(ENCODER_TIME)

LAYERS: dict[str, Recurrent] = {
    "gru": Gru(3, 5),
    "gru two layers both ways": Gru(3, 4, 2, True),
    "gru before": Gru(3, 4, 2, reset="before"),
    "gru write both ways": Gru(3, 4, 1, True, update="write"),
    "gru before write single": Gru(3, 4, 2, True, "single", reset="before", update="write"),
    "gru single": Gru(3, 4, bias="single"),
    "gru without bias": Gru(3, 4, bias="none"),
    "lstm": Lstm(3, 5),
    "lstm three layers both ways": Lstm(3, 2, 3, True),
    "lstm single both ways": Lstm(3, 4, 1, True, "single"),
    "lstm without bias": Lstm(3, 4, 2, bias="none", dropout=0.5),
    "lstm projected": Lstm(3, 5, projection_size=2),
    "lstm projected two layers both ways": Lstm(3, 4, 2, True, projection_size=3),
    "lstm projected single": Lstm(3, 4, 2, bias="single", projection_size=3),
    "lstm projected to more": Lstm(3, 4, 1, True, projection_size=6),
    "lstm peepholes": Lstm(3, 5, peepholes=True),
    "lstm peepholes two layers both ways": Lstm(3, 4, 2, True, peepholes=True),
    "lstm peepholes without bias": Lstm(3, 4, bias="none", peepholes=True),
    "lstm peepholes projected": Lstm(3, 5, 2, peepholes=True, projection_size=3),
    "lstm peepholes projected both ways": Lstm(3, 4, 1, True, "single", peepholes=True, projection_size=3),
    "rnn tanh": Rnn(3, 5, 2),
    "rnn relu both ways": Rnn(3, 4, 1, True, activation="relu"),
    "rnn sigmoid both ways": Rnn(3, 4, 2, True, activation="sigmoid"),
    "rnn without bias": Rnn(3, 1, bias="none", dropout=0.0),
}

RIGHT = np.array([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0]], bool)
MASKS: dict[str, Array | None] = {
    "unmasked": None,
    "full": np.ones_like(RIGHT),
    "right": RIGHT,
    "left": RIGHT[:, ::-1].copy(),
    "holes": np.array([[0, 1, 0, 1, 1, 0], [1, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]], bool),
    "empty": np.zeros_like(RIGHT),
}


def random(*shape: int, seed: int = 1) -> Array:
    return single(np.random.default_rng((seed, *shape)).normal(size=shape))


def layer_row(
    name: str,
    op: Recurrent,
    mask: Array | None = None,
    *,
    batch: int = 4,
    time: int = 6,
    start: bool = False,
    past: bool = False,
) -> Row:
    """A mask longer than `time` covers a past too. `start` gives h0 (c0), `past` makes the layer stateful."""
    states = tuple(random(batch, op.num_layers * op.directions, width, seed=k) for k, width in enumerate(op.widths))
    length = (B, T) if mask is None or mask.shape[1] == time else (B, P + T)
    inputs = [Input((B, T, op.input_size), random(batch, time, op.input_size))]
    inputs.append(Input(length, mask, "bool") if mask is not None else None)
    inputs += [Input((B, *s.shape[1:]), 0.5 * s) for s in states] if start else []
    sizes = {BATCH: batch, TIME: time, PAST: mask.shape[1] - time if mask is not None else 0}
    return Row(name, replace(op, stateful=past), tuple(inputs), sizes, states if past else ())


def layer_rows() -> Iterator[Row]:
    for name, op in LAYERS.items():
        for kind, mask in MASKS.items():
            yield layer_row(f"{name} {kind}", op, mask)
        yield layer_row(f"{name} holes from a start", op, MASKS["holes"], start=True)
        yield layer_row(f"{name} from a start", op, start=True)
        yield layer_row(f"{name} one step of one", op, np.ones((1, 1), bool), batch=1, time=1)
        yield layer_row(f"{name} no step", op, np.ones((2, 0), bool), batch=2, time=0, start=True)
        yield layer_row(f"{name} no step, unmasked", op, batch=2, time=0, start=True)
        if not op.bidirectional:
            yield layer_row(f"{name} past", op, MASKS["holes"], past=True)
            yield layer_row(f"{name} past wins", op, start=True, past=True)
            yield layer_row(f"{name} long mask", op, MASKS["holes"], time=4, past=True)
            yield layer_row(f"{name} no step with a past", op, np.ones((2, 3), bool), batch=2, time=0, past=True)
            # a file always has a past: there the first one is the start
            yield replace(layer_row(f"{name} start before a past", op, start=True, past=True), pasts=(), onnx=False)


CELLS: dict[str, Cell] = {
    "gru": GruCell(3, 4),
    "gru before": GruCell(3, 4, reset="before"),
    "gru write": GruCell(3, 4, update="write"),
    "gru before write single": GruCell(3, 4, "single", reset="before", update="write"),
    "gru before without bias": GruCell(3, 4, "none", reset="before"),
    "gru single": GruCell(3, 4, "single"),
    "gru without bias": GruCell(3, 4, "none"),
    "lstm": LstmCell(3, 4),
    "lstm single": LstmCell(3, 4, "single"),
    "lstm without bias": LstmCell(3, 4, "none"),
    "lstm projected": LstmCell(3, 4, projection_size=2),
    "lstm peepholes": LstmCell(3, 4, peepholes=True),
    "lstm peepholes projected": LstmCell(3, 4, "none", peepholes=True, projection_size=3),
    "rnn tanh": RnnCell(3, 4),
    "rnn relu": RnnCell(3, 4, "none", activation="relu"),
    "rnn sigmoid": RnnCell(3, 4, activation="sigmoid"),
    "rnn single": RnnCell(3, 4, "single"),
}


def cell_row(name: str, op: Cell, batch: int) -> Row:
    states = [random(batch, width, seed=k) for k, width in enumerate(op.rule.widths(op.hidden_size))]
    inputs = [Input((B, op.input_size), random(batch, op.input_size)), *(Input((B, s.shape[1]), s) for s in states)]
    return Row(name, op, tuple(inputs), {BATCH: batch})


def open_row(name: str, op: Cell, inputs: int) -> Row:
    """A cell that reads 3 channels, some of them before."""
    gates, rest = random(4, op.rule.gates * op.hidden_size), random(4, 3 - inputs) if inputs < 3 else None
    states = [random(4, width, seed=k) for k, width in enumerate(op.rule.widths(op.hidden_size))]
    given = [None if a is None else Input((B, a.shape[1]), a) for a in (gates, rest, *states)]
    return Row(f"{name} {inputs}", OpenCell(op, inputs), tuple(given), {BATCH: 4})


def lstm_body() -> Region:
    """h, c, x, bias -> h', c', [h'; x], and h' once more"""
    b = Builder("LstmStep")
    h, c = b.input("h", (B, 4)), b.input("c", (B, 4))
    x, bias = b.input("x", (B, 3)), b.input("bias", (B, 3))
    h, c = b.add_many(LstmCell(3, 4), b.add(Add(), x, bias), h, c, name="cell", hint="h c")
    return b.done(h, c, b.add(Concat(), h, x, hint="y"), h)


def attending_body() -> Region:
    """h, x, keys, memory, mask -> h', [h'; context], weights: Bahdanau's step with a dot product"""
    b = Builder("AttendingStep")
    h, x = b.input("h", (B, 4)), b.input("x", (B, 3))
    scores, memory = b.input("scores", (B, S)), b.input("memory", (B, S, 5))
    mask = b.input("mask", (B, S), "bool")
    weights = b.add(MaskedSoftmax(), scores, mask, hint="weights")
    context = b.add(WeightedSum(), weights, memory, hint="context")
    h = b.add(GruCell(8, 4), b.add(Concat(), x, context), h, name="gru", hint="h")
    return b.done(h, b.add(Linear(9, 2), b.add(Concat(), h, context), name="out", hint="y"), weights)


def keeping_body() -> Region:
    """h, x, real -> h', which stands still where the step is not real"""
    b = Builder("KeepingStep")
    h, x, real = b.input("h", (B, 4)), b.input("x", (B, 3)), b.input("real", (B,), "bool")
    new = b.add(GruCell(3, 4), x, h, name="gru", hint="new")
    return b.done(b.add(KeepAtPadding(), real, new, h, hint="h"), new)


def loop_rows() -> Iterator[Row]:
    for time, batch in ((5, 3), (1, 1), (0, 2)):
        sizes = {BATCH: batch, TIME: time, ENCODER_TIME: 6}
        x, bias = Input((B, T, 3), random(batch, time, 3)), Input((B, 3), random(batch, 3))
        h, c = (random(batch, 4, seed=k) for k in (2, 3))
        two = Loop(lstm_body(), carried=2, stateful=False)
        tag = f"of {time} steps"
        yield Row(f"lstm {tag}", two, (Input((B, 4), h), Input((B, 4), c), x, bias), sizes)
        yield Row(f"lstm from zeros {tag}", two, (None, None, x, bias), sizes)
        yield Row(f"lstm from h {tag}", two, (Input((B, 4), h), None, x, bias), sizes)
        stateful = replace(two, stateful=True)
        yield Row(f"lstm past {tag}", stateful, (Input((B, 4), c), None, x, bias), sizes, (h, c))
        start = (Input((B, 4), c), None, x, bias)
        yield Row(f"lstm before a past {tag}", stateful, start, sizes, onnx=False)
        real = Input((B, T), MASKS["holes"][:batch, :time], "bool")
        yield Row(f"two at a step {tag}", Loop(keeping_body(), 1, 2), (Input((B, 4), h), x, real), sizes, (c,))
        memory = Input((B, S, 5), random(batch, 6, 5))
        scores = Input((B, S), random(batch, 6))
        for kind in ("right", "holes", "unmasked"):
            mask = MASKS[kind]
            given = Input((B, S), None if mask is None else mask[:batch], "bool")
            attending = Loop(attending_body(), carried=1)
            yield Row(f"attending {kind} {tag}", attending, (None, x, scores, memory, given), sizes, (None,))


def other_rows() -> Iterator[Row]:
    sizes, h = {BATCH: 4, TIME: 6}, Input((B, 6, 5), random(4, 6, 5))
    for take in ("all", "forward", "backward", "sum"):
        yield Row(take, SelectState(1, 2, take), (h,), sizes)
    yield Row("one direction", SelectState(5), (h,), sizes)
    yield Row("sum", MergeDirections(), (Input((B, T, 8), random(4, 6, 8)),), sizes)
    yield Row("sum of no step", MergeDirections(), (Input((B, T, 8), random(4, 0, 8)),), {BATCH: 4, TIME: 0})
    yield Row("one layer", StackStates(), (Input((B, 5), random(4, 5)),), sizes)
    yield Row("layers", StackStates(), tuple(Input((B, 5), random(4, 5, seed=k)) for k in range(3)), sizes)
    for count in range(3):
        bias = [Input((12,), random(12, seed=k)) for k in range(count)]
        given = (Input((B, T, 3), random(4, 6, 3)), Input((12, 5), random(12, 5)), *bias)
        yield Row(f"{count} biases", InputGates(), given, sizes)
    first = Input((B,), MASKS["holes"][:, 0], "bool")
    yield Row("states", KeepAtPadding(), (first, *(Input((B, 5), random(4, 5, seed=k)) for k in range(2))), sizes)
    chunk = Input((B, T, 3), random(4, 4, 3))
    for name, given in (
        ("long", Input((B, P + T), MASKS["holes"], "bool")),
        ("unmasked", Input((B, T), None, "bool")),
        ("absent", None),
    ):
        yield Row(name, RealSteps(), (given, chunk), {BATCH: 4, TIME: 4, PAST: 2})
    for kind, mask in MASKS.items():
        given = Input((B, T), mask, "bool")
        yield Row(kind, MaskedSoftmax(), (Input((B, T), 9 * random(4, 6)), given), sizes)
    yield Row("without a mask", MaskedSoftmax(), (Input((B, T), random(4, 6)), None), sizes)
    yield from alignment_rows()
    for batch in (1, 3):
        like = Input((B, T, 3), random(batch, 2, 3))
        yield Row(f"{batch} rows", LearnedState("h0", 2, 5), (like,), {BATCH: batch, TIME: 2})
        given = Input((B, 2, 5), random(batch, 2, 5))
        yield Row(f"given to {batch} rows", GivenState(2, 5), (given, like), {BATCH: batch, TIME: 2})
        yield Row(f"zeros for {batch} rows", GivenState(2, 5), (None, like), {BATCH: batch, TIME: 2})
        left_out = Input((B, 2, 5), None)
        yield Row(f"left out by {batch} rows", GivenState(2, 5), (left_out, like), {BATCH: batch, TIME: 2}, onnx=False)
    yield Row("keys", DotScores(), (Input((B, 5), random(4, 5)), Input((B, T, 5), random(4, 6, 5))), sizes)
    yield Row("memory", WeightedSum(), (Input((B, T), random(4, 6)), Input((B, T, 5), random(4, 6, 5))), sizes)


def alignment_rows() -> Iterator[Row]:
    """Windows narrower and wider than the memory; centers at both ends."""
    memory, sizes = Input((B, T, 3), random(4, 6, 3)), {BATCH: 4, TIME: 6}
    center = Input((B, 1), np.array([[0.015625], [0.40625], [0.71875], [0.984375]]))
    for kind, mask in MASKS.items():
        given = Input((B, T), mask, "bool")
        yield Row(kind, RealPlaces(), (memory, given), sizes)
        real = np.ones((4, 6), bool) if mask is None else mask
        places = Input((B, T), real.cumsum(1) - 1, "int64")
        lengths = Input((B, 1), real.sum(1, keepdims=True), "int64")
        scores = Input((B, T), 3 * random(4, 6))
        for size in (1, 2, 9):
            inputs = (scores, center, places, lengths, given)
            yield Row(f"{kind} within {size}", LocalAlignment(size), inputs, sizes)
    yield Row("absent", RealPlaces(), (memory, None), sizes)


def scanned_rows() -> Iterator[Row]:
    for row in layer_rows():
        for packed in (True, False):
            assert isinstance(row.op, Recurrent)
            yield replace(row, name=f"{row.name}{' packed' * packed}", op=Scanned(row.op, packed))


ROWS: list[Row] = [
    *layer_rows(),
    *scanned_rows(),
    *(cell_row(name, op, batch) for name, op in CELLS.items() for batch in (1, 3)),
    *(open_row(name, op, n) for name, op in CELLS.items() if "step" not in name for n in (1, 3)),
    *loop_rows(),
    *other_rows(),
]
