"""Values worked out by hand elsewhere, from public bug reports, and the wrong ones that the reporters saw."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from cases_recurrent import B, T
from harness import Array, Input, Row, onnx_session, reference, run_onnx, run_torch

from seqspec.backends.source import write
from seqspec.backends.weights import initial
from seqspec.graph.dims import BATCH, TIME
from seqspec.graph.ir import Graph
from seqspec.ops.base import Op
from seqspec.ops.cells import LstmCell
from seqspec.ops.gru import Gru
from seqspec.ops.lstm import Lstm
from seqspec.ops.state import MergeDirections, SelectState

NAMES = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
FACES = ("reference", "torch", "onnx")


def wave(shape: tuple[int, ...], k: int, scale: float = 1.0) -> Array:
    """The cases' generator of tensors."""
    return np.round(scale * np.sin(0.7 * np.arange(np.prod(shape)) + 1.3 * k + 0.1), 4).reshape(shape)


@dataclass(frozen=True)
class Weighted(Row):
    """A row with weights of its own."""

    own: dict[str, Array] = field(default_factory=dict)

    def weights(self) -> dict[str, Array]:
        return {f"op.{name}": w for name, w in self.own.items()}


def weighted(op: Op, weights: dict[str, Array], x: Input, *more: Input | None) -> Weighted:
    batch, time = x.array.shape[:2]
    return Weighted("case", op, (x, *more), {BATCH: batch, TIME: time}, own=weights)


def run(face: str, row: Row) -> list[Array]:
    if face == "reference":
        return reference(row)
    return run_torch(row) if face == "torch" else run_onnx(row, True)


def near(got: Array, want: Any) -> bool:
    return bool(np.allclose(got, want, rtol=1e-5, atol=1e-5))


def gru_weights(input_size: int, hidden_size: int, first: int = 1, scale: float = 0.5) -> dict[str, Array]:
    rows = 3 * hidden_size
    shapes = [((rows, input_size), 1.0), ((rows, hidden_size), 1.0), ((rows,), scale), ((rows,), scale)]
    return {name: wave(shape, first + k, s) for k, (name, (shape, s)) in enumerate(zip(NAMES, shapes, strict=True))}


@pytest.mark.parametrize("face", FACES)
def test_the_backward_direction_does_not_read_the_padding(face: str) -> None:
    """pytorch#517, pytorch#3662, keras#7244"""
    embedding = wave((10, 5), 1)
    embedding[0] = 0
    ids = np.array([[2, 4, 2, 0, 0, 0]])
    weights = gru_weights(5, 1, 2, 1.0)
    weights |= {f"{name}_reverse": w for name, w in weights.items()}
    x = Input((B, T, 5), embedding[ids])
    row = weighted(Gru(5, 1, 1, True), weights, x, Input((B, T), ids != 0, "bool"))
    y, h = run(face, row)
    forward = [0.6648884359, 0.9605260189, 0.8298644461]
    assert near(y[0, :3, 0], forward)
    assert near(y[0, :3, 1], forward[::-1])
    assert not y[0, 3:].any()
    assert near(h[0, :, 0], [0.8298644461, 0.8298644461])
    wrong, _ = run(face, unmasked(row))
    assert near(wrong[0, :3, 1], [0.8291629029, 0.9728108124, 0.8030610973])
    assert not near(wrong[0, :3, 1], forward[::-1])


def unmasked(row: Weighted) -> Weighted:
    """The same without a mask, as code that forgets it computes."""
    return replace(row, inputs=(row.inputs[0], None))


@pytest.mark.parametrize("face", FACES)
def test_the_summary_of_a_padded_bidirectional_sequence(face: str) -> None:
    """pytorch#3587, practical-pytorch#97"""
    shapes = [((8, 3), 1.0), ((8, 2), 1.0), ((8,), 0.5), ((8,), 0.5)]
    weights = {
        name + suffix: wave(shape, first + k, scale)
        for first, suffix in ((1, ""), (11, "_reverse"))
        for k, (name, (shape, scale)) in enumerate(zip(NAMES, shapes, strict=True))
    }
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
    row = weighted(Lstm(3, 2, 1, True), weights, Input((B, T, 3), wave((2, 4, 3), 21)), Input((B, T), mask, "bool"))
    y, h, c = run(face, row)
    final = [
        [0.148055156, 0.1633617249, 0.1887474777, 0.002122374954],
        [-0.2685719634, 0.08091676272, -0.0081063383, 0.07683644886],
    ]
    cell = [
        [0.1906187422, 0.3331864032, 0.2648763596, 0.006648470724],
        [-0.3563234077, 0.5262869928, -0.03164988112, 0.09393042065],
    ]
    select = SelectState(0, 2)
    assert near(run(face, weighted(select, {}, Input((B, 2, 2), h.astype(float))))[0], final)
    assert near(run(face, weighted(select, {}, Input((B, 2, 2), c.astype(float))))[0], cell)
    first = [
        [0.2369713016, -0.007523131883, 0.1887474777, 0.002122374954],
        [0.03437978276, 0.3812702588, 0.0150044486, -0.001624636035],
        [-0.1962093249, 0.07456082008, -0.0609108266, 0.01033747623],
        [0.148055156, 0.1633617249, 0.177192712, 0.001654481405],
    ]
    second = [
        [0.01194765516, 0.4141785685, -0.0081063383, 0.07683644886],
        [-0.2685719634, 0.08091676272, -0.2064430893, 0.01064589072],
        [0, 0, 0, 0],
        [0, 0, 0, 0],
    ]
    assert near(y, [first, second])
    added = [[0.003841316858, 0.4910150174], [-0.4750150526, 0.09156265344], [0, 0], [0, 0]]
    (total,) = run(face, weighted(MergeDirections(), {}, Input((B, T, 4), y.astype(float))))
    assert near(total[1], added)
    assert near(total[0, 0], [0.4257187792, -0.005400756929])
    wrong, _, _ = run(face, unmasked(row))
    assert near(wrong[1, -1], [0.02097838366, 0.4071084234, 0.02315611511, -0.02097668903])
    assert not near(wrong[1, -1], final[1])
    assert not near(y[1, -1], final[1])


RESET = {
    "after": [
        [0.4195708065, 0.1427589382, 0.1636480324],
        [-0.0814972831, -0.04122462487, 0.1824175074],
        [0.3011734178, 0.1843873685, -0.1001961261],
    ],
    "before": [
        [0.458155388, 0.01809402055, 0.144215339],
        [-0.007335041749, -0.1495224367, 0.141596686],
        [0.3133627366, 0.04665227958, -0.1852263953],
    ],
}


@pytest.mark.parametrize("reset", RESET)
@pytest.mark.parametrize("face", FACES)
def test_both_candidate_formulas_of_a_gru(face: str, reset: Any) -> None:
    """onnxscript#2852, pytorch#99531, keras#15915: off by 0.138 where one is taken for the other."""
    x, h0 = Input((B, T, 2), wave((1, 3, 2), 5)), Input((B, 1, 3), wave((1, 1, 3), 6))
    y, h = run(face, weighted(Gru(2, 3, reset=reset), gru_weights(2, 3), x, None, h0))
    assert near(y[0], RESET[reset])
    assert near(h[0, 0], RESET[reset][-1])
    assert not near(y[0], RESET["before" if reset == "after" else "after"])
    assert abs(np.abs(np.subtract(RESET["after"], RESET["before"])).max() - 0.1377350889) < 1e-9


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("reset", RESET)
def test_the_other_meaning_of_the_update_gate(face: str, reset: Any) -> None:
    """`write` with the rows of z negated is `keep`."""
    x, h0 = Input((B, T, 2), wave((1, 3, 2), 5)), Input((B, 1, 3), wave((1, 1, 3), 6))
    negated = {n: np.concatenate([w[:3], -w[3:6], w[6:]]) for n, w in gru_weights(2, 3).items()}
    assert near(run(face, weighted(Gru(2, 3, reset=reset, update="write"), negated, x, None, h0))[0][0], RESET[reset])
    assert not near(run(face, weighted(Gru(2, 3, reset=reset), negated, x, None, h0))[0][0], RESET[reset])


@pytest.mark.parametrize("bias", ["double", "single"])
@pytest.mark.parametrize("face", FACES)
def test_a_forget_bias_is_counted_once(face: str, bias: Any) -> None:
    """pytorch#750, ESIM#2"""
    op = Lstm(1, 2, bias=bias, forget_bias=1.0)
    start = {p.name: initial(p).astype(float) for p in op.params()}
    total = sum(w for name, w in start.items() if name.startswith("bias"))
    assert np.array_equal(total[2:4], [1, 1])
    assert all(0 < abs(v) < 2 * 2**-0.5 for v in np.delete(total, [2, 3]))
    # what is not the forget gate's is set to zero for the hand value
    forget = np.isin(np.arange(8), [2, 3])
    weights = {n: np.where(forget, w, 0) if n.startswith("bias") else np.zeros_like(w) for n, w in start.items()}
    x, (h0, c0) = Input((B, T, 1), np.zeros((1, 1, 1))), (Input((B, 1, 2), np.full((1, 1, 2), v)) for v in (0.0, 1.0))
    _, h, c = run(face, weighted(op, weights, x, None, h0, c0))
    assert near(c, 0.7310585786)
    assert near(h, 0.3118562749)
    wrong = {
        "both": {n: np.where(forget, 1.0, 0) if n.startswith("bias") else w for n, w in weights.items()},
        "input gate": {n: np.roll(w, -2, 0) for n, w in weights.items()},
        "none": {n: 0 * w for n, w in weights.items()},
    }
    values = {name: run(face, weighted(op, w, x, None, h0, c0))[2].ravel()[0] for name, w in wrong.items()}
    assert near(values["none"], 0.5)
    assert near(values["input gate"], 0.5)
    assert near(values["both"], 0.880797078 if bias == "double" else 0.7310585786)
    output_rows = {n: np.roll(w, 4, 0) for n, w in weights.items()}
    assert near(run(face, weighted(op, output_rows, x, None, h0, c0))[1], 0.3378347121)


@pytest.mark.parametrize("bias", ["double", "single"])
def test_the_emitted_file_starts_at_the_forget_bias_without_weights(bias: Any) -> None:
    cell = weighted(
        LstmCell(1, 2, bias, forget_bias=2.5), {}, Input((B, 1), np.zeros((1, 1))), *[Input((B, 2), None)] * 2
    )
    layer = weighted(Lstm(1, 2, 2, True, bias, forget_bias=2.5), {}, Input((B, T, 1), np.zeros((1, 1, 1))), None)
    for row in (cell, layer):
        space: dict[str, Any] = {"__name__": "emitted"}
        written = write(Graph(row.region))
        exec(written.text, space)
        weights = {n.removeprefix("op."): w.detach().numpy() for n, w in space[written.model]().state_dict().items()}
        biases = [n for n in weights if n.startswith("bias_ih")]
        assert len(biases) == (1 if row is cell else 4)
        for name in biases:
            total = weights[name] + weights.get(name.replace("_ih", "_hh"), 0)
            assert np.array_equal(total[2:4], [2.5, 2.5])
            assert np.abs(np.delete(total, [2, 3])).max() < 2 * 2**-0.5


def test_a_file_runs_at_another_batch_size() -> None:
    """onnxruntime#19270, pytorch#151582: files exported with an example batch of one ran at batch one only."""
    weights = gru_weights(3, 2)
    one = weighted(Gru(3, 2), weights, Input((B, T, 3), wave((1, 4, 3), 11)), None)
    session = onnx_session(one, True)
    expected = {
        (1, 4): [
            [
                [-0.1407994922, -0.01617450625],
                [0.4690559576, 0.4448818692],
                [0.0643439497, 0.5188825471],
                [0.004100032619, 0.453080902],
            ]
        ],
        (3, 2): [
            [[0.4472626521, 0.6062315276], [-0.1248227917, 0.618429508]],
            [[0.435111757, -0.06368313138], [0.7161531511, 0.5517292726]],
            [[-0.3569445009, 0.1252643], [0.2457100849, 0.02092442372]],
        ],
    }
    for (batch, time), want in expected.items():
        x = wave((batch, time, 3), 10 + batch)
        assert near(session.run(None, {"input_0": x.astype(np.float32)})[0], want)
    assert [i.shape for i in session.get_inputs()] == [["batch_size", "sequence_length", 3]]
    assert [o.shape for o in session.get_outputs()] == [["batch_size", "sequence_length", 2], ["batch_size", 1, 2]]
    row = weighted(Gru(3, 2, stateful=True), weights, Input((B, T, 3), wave((3, 2, 3), 13)), None)
    with_start = [
        [[0.9095936717, 0.7187250293], [0.1120674257, 0.7210824906]],
        [[0.7701377489, -0.003093142078], [0.8825292559, 0.4940022418]],
        [[-0.6975344781, -0.2142964724], [-0.02180486914, -0.1055062885]],
    ]
    for face in FACES:
        assert near(run(face, replace(row, pasts=(wave((3, 2), 20)[:, None],)))[0], with_start)
        assert near(run(face, row)[0], expected[3, 2])
