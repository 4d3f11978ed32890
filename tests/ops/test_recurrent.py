"""What the op table does not say of recurrent ops: torch.nn as a second judge, chunks, padding, training and export."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
import torch
from cases_recurrent import LAYERS, MASKS, B, S, T, attending_body, layer_row, lstm_body, random
from harness import Array, Input, Row, onnx_session, reference, single, torch_module
from torch import nn

from seqspec.backends import torch as torch_backend
from seqspec.backends.source import source
from seqspec.graph.builder import Builder
from seqspec.graph.dims import BATCH, ENCODER_TIME, TIME
from seqspec.graph.ir import Graph, Init
from seqspec.graph.signature import signature
from seqspec.graph.types import ShapeError
from seqspec.ops.attend import MaskedSoftmax
from seqspec.ops.cells import GruCell, LstmCell
from seqspec.ops.elementwise import Unary
from seqspec.ops.gru import Gru
from seqspec.ops.loop import Loop
from seqspec.ops.lstm import Lstm
from seqspec.ops.recurrent import Recurrent
from seqspec.ops.rnn import Rnn
from seqspec.ops.state import SelectState

NATIVE = [name for name, op in LAYERS.items() if op.native]
STATEFUL = [name for name, op in LAYERS.items() if not op.bidirectional]


def tensors(arrays: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(a) for name, a in arrays.items()}


def outputs(out: Any) -> list[torch.Tensor]:
    return [t for t in out if isinstance(t, torch.Tensor)]


# torch.nn


def torch_layer(op: Recurrent, row: Row) -> nn.RNNBase:
    """The layer as somebody would write it by hand."""
    options: dict[str, Any] = {"num_layers": op.num_layers, "bidirectional": op.bidirectional}
    options["bias"] = op.bias != "none"
    if isinstance(op, Rnn):
        options["nonlinearity"] = op.activation
    if isinstance(op, Lstm):
        options["proj_size"] = op.projection_size or 0
    kind = {Gru: nn.GRU, Lstm: nn.LSTM, Rnn: nn.RNN}[type(op)]
    layer = kind(op.input_size, op.hidden_size, batch_first=True, dtype=torch.float64, **options).eval()
    layer.load_state_dict({name.removeprefix("op."): w for name, w in tensors(row.weights()).items()})
    return layer


@pytest.mark.parametrize("name", NATIVE)
def test_reference_and_emitted_file_are_torch_on_a_packed_sequence(name: str) -> None:
    op, mask = LAYERS[name], MASKS["right"]
    row = layer_row(name, op, mask, start=True)
    x, _, *start = (torch.tensor(a.array) for a in row.inputs if a is not None)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(mask.sum(1)), batch_first=True, enforce_sorted=False)
    states = [s.transpose(0, 1).contiguous() for s in start]
    with torch.no_grad():
        y, last = torch_layer(op, row)(packed, states[0] if len(states) == 1 else tuple(states))
        y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
        emitted = outputs(torch_module(row)(**tensors({n: a.array for n, a in row.given})))
    want = [y, *(s.transpose(0, 1) for s in ([last] if len(states) == 1 else last))]
    for ours, judge, torchs in zip(emitted, reference(row), want, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=0, atol=1e-12)
        np.testing.assert_allclose(judge, torchs, rtol=0, atol=1e-12)


# ONNX's own description of the node: peepholes


@pytest.mark.parametrize("name", ["lstm peepholes", "lstm peepholes without bias"])
def test_peepholes_are_those_of_the_onnx_node(name: str) -> None:
    op = replace(LAYERS[name], num_layers=1, bidirectional=False)
    row = layer_row(name, op, start=True)
    weights = {n.removeprefix("op."): w for n, w in row.weights().items()}

    def gates(weight: Array, order: str) -> Array:
        """i f g o -> i o f c, or i f o -> i o f"""
        parts = dict(zip(order, np.split(weight, len(order)), strict=True))
        return np.concatenate([parts[g] for g in "iofg" if g in order])[None]

    rows = 4 * op.hidden_size
    biases = [gates(weights.get(n, np.zeros(rows)), "ifgo") for n in ("bias_ih_l0", "bias_hh_l0")]
    matrices = [gates(weights[n], "ifgo") for n in ("weight_ih_l0", "weight_hh_l0")]
    x, _, h, c = (None if i is None else i.array for i in row.inputs)
    feeds = {"X": x.swapaxes(0, 1), "W": matrices[0], "R": matrices[1], "B": np.concatenate(biases, 1)}
    feeds |= {"h": h.swapaxes(0, 1), "c": c.swapaxes(0, 1), "P": gates(weights["weight_ch_l0"], "ifo")}
    node = onnx.helper.make_node(
        "LSTM", ["X", "W", "R", "B", "", "h", "c", "P"], ["Y", "Yh", "Yc"], hidden_size=op.hidden_size
    )
    described = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, a.shape) for n, a in feeds.items()]
    made = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.DOUBLE, None) for n in ("Y", "Yh", "Yc")]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "peepholes", described, made))
    want_y, want_h, want_c = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    got_y, got_h, got_c = reference(row)
    np.testing.assert_allclose(got_y, want_y[:, 0].swapaxes(0, 1), rtol=0, atol=1e-12)
    np.testing.assert_allclose(got_h, want_h.swapaxes(0, 1), rtol=0, atol=1e-12)
    np.testing.assert_allclose(got_c, want_c.swapaxes(0, 1), rtol=0, atol=1e-12)


# padding: left, right, in holes, alone


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_row_gives_the_same_numbers_however_it_is_padded(name: str, backend: str) -> None:
    op, length = LAYERS[name], 4
    alone = random(1, length, op.input_size)
    masks = np.array([[1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0, 1]], bool)
    x = random(3, 7, op.input_size, seed=9)  # noise where there is padding
    for row, mask in zip(x, masks, strict=True):
        row[mask] = alone[0]
    padded = run(backend, Row(name, op, (Input((B, T, op.input_size), x), Input((B, T), masks, "bool")), {}))
    whole = run(backend, Row(name, op, (Input((B, T, op.input_size), alone), None), {}))
    tolerance = 1e-12 if backend == "torch" else 2e-6
    for row, mask in zip(padded[0], masks, strict=True):
        np.testing.assert_allclose(row[mask], whole[0][0], rtol=0, atol=tolerance)
        assert not row[~mask].any()
    for state, want in zip(padded[1:], whole[1:], strict=True):
        np.testing.assert_allclose(state, np.broadcast_to(want, state.shape), rtol=0, atol=tolerance)


def run(backend: str, row: Row) -> list[Array]:
    given = {name: x.array for name, x in row.given}
    if backend == "torch":
        with torch.no_grad():
            return [t.numpy() for t in outputs(torch_module(row)(**tensors(given)))]
    feeds = {name: a.astype(np.float32) if a.dtype == np.float64 else a for name, a in given.items()}
    return list(onnx_session(row, True).run(None, feeds))


# chunks

CUTS = [0, 2, 2, 3, 6]  # one of them empty


def chunks(row: Row) -> Iterator[dict[str, Array]]:
    """The inputs of every chunk; what has no time axis stays."""
    timed = {name for name, x in row.given if T in x.shape}
    for start, end in pairwise(CUTS):
        yield {n: x.array[:, start:end] if n in timed else x.array for n, x in row.given}


def loop_row(name: str) -> Row:
    x = Input((B, T, 3), random(4, 6, 3))
    if name == "loop":
        return Row(name, Loop(lstm_body(), carried=2), (None, None, x, Input((B, 3), random(4, 3))), {})
    memory, scores = Input((B, S, 5), random(4, 6, 5)), Input((B, S), random(4, 6))
    mask = Input((B, S), MASKS["holes"], "bool")
    return Row(name, Loop(attending_body(), carried=1), (None, x, scores, memory, mask), {})


CHUNKED = [*STATEFUL, "loop", "attending"]


def chunked_row(name: str) -> Row:
    if name in LAYERS:
        op = LAYERS[name]
        row = layer_row(name, op, MASKS["holes"])
        return replace(row, op=replace(op, stateful=True))
    return loop_row(name)


@pytest.mark.parametrize("name", CHUNKED)
def test_chunks_with_carried_state_are_one_pass_in_torch(name: str) -> None:
    row = chunked_row(name)
    module, state, parts = torch_module(row), None, []
    with torch.no_grad():
        whole = module(**tensors({n: x.array for n, x in row.given}))
        for given in chunks(row):
            parts.append(module(**tensors(given), state=state))
            state = parts[-1].state
    check_chunks(row, [[t.numpy() for t in outputs(p)] for p in parts], [t.numpy() for t in outputs(whole)], 1e-12)


@pytest.mark.parametrize("name", CHUNKED)
def test_chunks_with_carried_state_are_one_pass_in_onnxruntime(name: str) -> None:
    row = chunked_row(name)
    session, states = onnx_session(row, True), signature(Graph(row.region)).states
    present = {s.past: np.zeros([4, *s.shape[1:]], np.float32) for s in states}
    count = len(row.outputs)

    def call(given: Mapping[str, Array], past: Mapping[str, Array]) -> list[Array]:
        cast = {n: a.astype(np.float32) if a.dtype == np.float64 else a for n, a in given.items()}
        return list(session.run(None, cast | dict(past)))

    whole, parts = call({n: x.array for n, x in row.given}, present)[:count], []
    for given in chunks(row):
        out = call(given, present)
        parts.append(out[:count])
        present = {s.past: a for s, a in zip(states, out[count:], strict=True)}
    check_chunks(row, parts, whole, 2e-6)


def check_chunks(row: Row, parts: list[list[Array]], whole: list[Array], tolerance: float) -> None:
    for number, (value, want) in enumerate(zip(row.outputs, whole, strict=True)):
        pieces = [p[number] for p in parts]
        got = np.concatenate(pieces, 1) if T in value.shape else pieces[-1]
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(1, np.abs(want).max()))


# training


def two_layers(native: bool, bidirectional: bool = True, dropout: float = 1.0) -> Lstm:
    return Lstm(3, 4, 2, bidirectional, "double" if native else "single", dropout)


@pytest.mark.parametrize("native", [True, False])
def test_dropout_acts_between_the_layers_and_in_training_alone(native: bool) -> None:
    row = layer_row("dropout", two_layers(native), MASKS["holes"])
    module = torch_module(row)
    given = tensors({n: x.array for n, x in row.given})
    weights = {n: np.zeros_like(w) if "weight_ih_l1" in n else w for n, w in row.weights().items()}
    deaf = copy.deepcopy(module)
    deaf.load_state_dict(tensors(weights))
    with torch.no_grad():
        inference, without = module(**given), deaf(**given)
        dropped = module.train()(**given)
    # a dropout of 1 is a second layer that hears nothing
    torch.testing.assert_close(dropped.output_0, without.output_0, rtol=0, atol=1e-12)
    assert not torch.allclose(dropped.output_0, inference.output_0)
    np.testing.assert_allclose(inference.output_0, reference(row)[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_a_ragged_batch_are_those_of_its_rows_alone(name: str) -> None:
    op, masks = LAYERS[name], MASKS["holes"]
    row = layer_row(name, op, masks)
    module = torch_module(row)
    x, mask = (torch.tensor(i.array) for i in row.inputs if i is not None)
    module(input_0=x, input_1=mask).output_0.square().sum().backward()
    batched = {n: p.grad.clone() for n, p in module.named_parameters()}
    module.zero_grad()
    unmasked = torch_module(replace(row, inputs=(row.inputs[0], None)))
    for number in np.flatnonzero(masks.any(1)):
        unmasked(input_0=x[number : number + 1, mask[number]]).output_0.square().sum().backward()
    for n, p in unmasked.named_parameters():
        torch.testing.assert_close(batched[n], p.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("reset", ["after", "before"])
def test_the_emitted_steps_have_right_gradients(reset: str) -> None:
    op = Gru(3, 2, 1, True, "single", reset=reset)
    row = layer_row("gradcheck", op, MASKS["holes"][:2, :4], batch=2, time=4, start=True)
    module = torch_module(row)
    x, mask, h = (torch.tensor(i.array) for i in row.inputs if i is not None)

    def y(x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return module(input_0=x, input_1=mask, input_2=h).output_0

    assert torch.autograd.gradcheck(y, (x.requires_grad_(), h.requires_grad_()))


def test_a_row_that_may_attend_to_nothing_has_finite_gradients() -> None:
    mask = np.array([[1, 0, 1], [0, 0, 0]], bool)
    row = Row("gradient", MaskedSoftmax(), (Input((B, T), random(2, 3)), Input((B, T), mask, "bool")), {})
    scores = torch.tensor(random(2, 3)).requires_grad_()
    with torch.autograd.set_detect_anomaly(True):  # not even a NaN on the way
        weights = torch_module(row)(scores, torch.tensor(mask)).output_0
        (weights * torch.tensor(random(2, 3, seed=4))).sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert not scores.grad[1].any()
    assert scores.grad[0].any()


# where a module goes


@pytest.mark.parametrize("name", ["gru two layers both ways", "gru before", "lstm", "rnn sigmoid both ways"])
def test_a_module_survives_copies_and_pickles(name: str) -> None:
    row = layer_row(name, LAYERS[name], MASKS["holes"])
    module = torch_backend.module(Graph(row.region)).eval()
    given = tensors({n: single(x.array).astype(np.float32) if x.dtype == "float" else x.array for n, x in row.given})
    with torch.no_grad():
        want = module(**given).output_0
        for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            assert torch.equal(twin(**given).output_0, want)


@pytest.mark.filterwarnings("ignore:The tensor attributes self.op._flat_weights")  # nn.RNNBase's own, harmless
@pytest.mark.parametrize("name", ["gru two layers both ways", "lstm single both ways", "lstm", "rnn relu both ways"])
@pytest.mark.parametrize("masked", [True, False])
def test_torch_export_with_any_batch(name: str, masked: bool) -> None:
    row = layer_row(name, LAYERS[name], MASKS["holes"][:, :3] if masked else None, time=3)
    module = torch_module(row)
    given = tensors({n: x.array for n, x in row.given})
    batch = torch.export.Dim("batch")
    exported = torch.export.export(module, (), given, dynamic_shapes={n: {0: batch} for n in given}).module()
    with torch.no_grad():
        for rows in (4, 3):
            some = {n: t[:rows] for n, t in given.items()}
            for got, want in zip(outputs(exported(**some)), outputs(module(**some)), strict=True):
                torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["loop", "attending"])
def test_torch_export_of_a_loop(name: str) -> None:
    row = loop_row(name)
    module, given = torch_module(row), tensors({n: x.array for n, x in row.given})
    batch = torch.export.Dim("batch")
    exported = torch.export.export(module, (), given, dynamic_shapes={n: {0: batch} for n in given}).module()
    some = {n: t[:3] for n, t in given.items()}
    for got, want in zip(outputs(exported(**some)), outputs(module(**some)), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_onnx_shapes_are_symbols_and_one_file_takes_any_batch() -> None:
    op = Lstm(3, 4, 2, True)
    session = onnx_session(layer_row("shapes", op, MASKS["right"]), True)
    assert [o.shape for o in session.get_outputs()] == [
        ["batch_size", "sequence_length", 8],
        ["batch_size", 4, 4],
        ["batch_size", 4, 4],
    ]
    for batch, time in ((1, 1), (5, 9), (2, 0)):
        row = layer_row("again", op, np.ones((batch, time), bool), batch=batch, time=time)
        given = {n: x.array.astype(np.float32) if x.dtype == "float" else x.array for n, x in row.given}
        for got, want in zip(session.run(None, given), reference(row), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


# the loop


def test_an_initial_value_is_worked_out_on_the_first_call_only() -> None:
    b = Builder("Decoder")
    encoded, x, bias = b.input("encoded", (B, 4)), b.input("x", (B, T, 3)), b.input("bias", (B, 3))
    loop = Loop(lstm_body(), carried=2)
    _, _, y, _ = b.add_many(loop, b.add(Unary("tanh"), encoded), None, x, bias, name="step", hint="h c y z")
    graph = Graph(b.done(y), frozenset({"encoded"}))
    module = torch_backend.module(graph).double().eval()
    encoded, x, bias = (torch.tensor(random(*shape)) for shape in ((2, 4), (2, 5, 3), (2, 3)))
    with torch.no_grad():
        whole = module(encoded=encoded, x=x, bias=bias)
        first = module(encoded=encoded, x=x[:, :2], bias=bias)
        rest = module(x=x[:, 2:], bias=bias, state=first.state)
    torch.testing.assert_close(torch.cat([first.y, rest.y], 1), whole.y, rtol=0, atol=1e-12)
    assert not torch.allclose(whole.y, module(encoded=-encoded, x=x, bias=bias).y)


def test_a_loop_costs_its_body_times_the_steps() -> None:
    body = attending_body()
    sizes = {BATCH: 2, TIME: 7, ENCODER_TIME: 11}
    b = Builder("Outer")
    x, scores = b.input("x", (2, 7, 3)), b.input("scores", (2, 11))
    memory = b.input("memory", (2, 11, 5))
    gru, context, out = 2 * 2 * 12 * (8 + 4), 2 * 2 * 11 * 5, 2 * 2 * 9 * 2
    assert Loop(body, 1).flops(None, x, scores, memory, None) == sizes[TIME] * (gru + context + out)


def test_a_loop_says_what_does_not_fit() -> None:
    b = Builder("Outer")
    x, bias, h = b.input("x", (B, T, 3)), b.input("bias", (B, 3)), b.input("h", (B, 5))
    loop = Loop(lstm_body(), carried=2)
    with pytest.raises(ShapeError, match=r"LstmStep takes h float\[batch_size, 4\], not float\[batch_size, 5\]"):
        loop.infer(h, None, x, bias)
    with pytest.raises(ShapeError, match=r"LstmStep takes x float\[batch_size, sequence_length, 3\]"):
        loop.infer(None, None, b.input("wide", (B, T, 4)), bias)
    with pytest.raises(ShapeError, match="LstmStep needs bias"):
        loop.infer(None, None, x, None)
    with pytest.raises(ShapeError, match="steps over 4 inputs, not 3"):
        loop.infer(None, None, x)


# shapes, costs, starts


def test_flops_are_the_matrices() -> None:
    b = Builder("Costs")
    x = b.input("x", (3, 5, 7))
    assert Gru(7, 4).flops(x) == 2 * 3 * 5 * 12 * (7 + 4)
    assert Lstm(7, 4, 2, True).flops(x) == 2 * 3 * 5 * 2 * 16 * ((7 + 4) + (8 + 4))
    assert Rnn(7, 4, 3).flops(x) == 2 * 3 * 5 * 4 * ((7 + 4) + 2 * (4 + 4))
    assert Lstm(7, 4, 2, True, projection_size=3).flops(x) == 2 * 15 * 2 * (16 * (7 + 3) + 12 + 16 * (6 + 3) + 12)
    assert Lstm(7, 4, peepholes=True).flops(x) == Lstm(7, 4).flops(x)
    assert LstmCell(7, 4).flops(b.input("step", (3, 7)), b.input("h", (3, 4)), b.input("c", (3, 4))) == 2 * 3 * 16 * 11


def test_what_does_not_fit_is_said() -> None:
    b = Builder("Misfits")
    x, mask = b.input("x", (B, T, 7)), b.input("mask", (B, T), "bool")
    with pytest.raises(ShapeError, match="input size 6 is given"):
        Gru(6, 4).infer(x, mask)
    with pytest.raises(ShapeError, match=r"an initial state is \[batch_size, 2, 4\]"):
        Gru(7, 4, 2).infer(x, mask, b.input("h", (B, 1, 4)))
    with pytest.raises(ShapeError, match="a mask int64"):
        Gru(7, 4).infer(x, b.input("ids", (B, T), "int64"))
    with pytest.raises(ShapeError, match=r"a cell needs h \[batch_size, 4\] and c"):
        LstmCell(7, 4).infer(b.input("step", (B, 7)), b.input("h0", (B, 4)))
    with pytest.raises(ShapeError, match="there is no layer 1 of 2 directions"):
        SelectState(1, 2).infer(b.input("states", (B, 2, 4)))
    for wrong in (lambda: Gru(7, 4, 1, True, stateful=True), lambda: Lstm(7, 4, bias="none", forget_bias=1.0)):
        with pytest.raises(ValueError, match=r"bidirectional|forget bias"):
            wrong()
    with pytest.raises(ValueError, match="no backward state"):
        SelectState(0, 1, "backward")


def test_parameters_are_torchs_in_its_order() -> None:
    lstm = nn.LSTM(3, 4, 2, bidirectional=True)
    projected = nn.LSTM(3, 4, 2, proj_size=2)
    pairs = [(Lstm(3, 4, 2, True), lstm), (Lstm(3, 4, 2, projection_size=2), projected)]
    for op, module in (*pairs, (GruCell(3, 4), nn.GRUCell(3, 4))):
        assert [(p.name, p.shape) for p in op.params()] == [(n, tuple(p.shape)) for n, p in module.named_parameters()]
        assert {p.init for p in op.params()} == {Init("uniform", (0.5,))}


def test_only_what_torch_lacks_is_stepped_by_the_file() -> None:
    for op in LAYERS.values():
        text = source(Graph(layer_row("text", op, MASKS["right"]).region))
        assert (f"nn.{op.rule.kind}(" in text) == op.native
        assert ("Stepwise(" in text) != op.native
