"""Cases 10, 12, 13, 15, 17: recurrent layers over padding, their conventions, their state, from spec to numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from end_to_end import Both, agree, close, gen, named

import seqspec


def test_10_the_backward_direction_does_not_read_padding(tmp_path: Path) -> None:
    embedding = gen((10, 5), 1)
    embedding[1:] = [
        [-0.9825, -0.6313, 0.0168, 0.657, 0.9882],
        [0.8546, 0.3191, -0.3665, -0.8797, -0.9792],
        [-0.6181, 0.0336, 0.6696, 0.9906, 0.8457],
        [0.3031, -0.3821, -0.8876, -0.9756, -0.6048],
        [0.0504, 0.682, 0.9928, 0.8367, 0.2871],
        [-0.3976, -0.8952, -0.9718, -0.5914, 0.0672],
        [0.6942, 0.9946, 0.8273, 0.2709, -0.4129],
        [-0.9026, -0.9677, -0.5777, 0.084, 0.7062],
        [0.9962, 0.8178, 0.2547, -0.4282, -0.9097],
    ]
    embedding[0] = 0
    cell = {
        "weight_ih": [
            [0.4274, -0.2555, -0.8183, -0.9962, -0.7055],
            [-0.0831, 0.5784, 0.9679, 0.9022, 0.4121],
            [-0.2718, -0.8278, -0.9946, -0.6935, -0.0663],
        ],
        "weight_hh": [[-0.7568], [-0.9999], [-0.7728]],
        "bias_ih": [-0.8323, -0.2794, 0.4048],
        "bias_hh": [0.3115, 0.8504, 0.9894],
    }
    weights = {f"encoder.layers.0.gru.{k}_l0{way}": v for k, v in cell.items() for way in ("", "_reverse")}
    weights["encoder.embed_tokens.weight"] = embedding
    spec = """
encoder:
  input: {kind: tokens, vocab_size: 10, d_model: 5, pad_id: 0}
  layers: [{kind: gru, hidden_size: 1, bidirectional: true, reset: after}]
"""
    forward = [0.6648884359, 0.9605260189, 0.8298644461]
    read_padding_first = [0.8291629029, 0.9728108124, 0.8030610973]
    both = Both(spec, weights, tmp_path / "all")
    for length in (3, 4, 6):
        ids = np.array([[2, 4, 2, 0, 0, 0][:length]])
        given = [{"input_ids": ids}, {"input_ids": ids, "attention_mask": (ids != 0).astype(np.int64)}]
        for inputs in given:
            for out in both.run(inputs):
                y = out["last_hidden_state"][0]
                agree(y[:3, 0], forward)
                agree(y[:3, 1], forward[::-1], not_=read_padding_first)
                assert not y[3:].any()
    final = Both(spec + "head: {kind: embedding, pool: final_state}\n", weights, tmp_path / "final")
    for out in final.run({"input_ids": np.array([[2, 4, 2, 0, 0, 0]])}):
        agree(out["embedding"], [[0.8298644461, 0.8298644461]], not_=[[0.8298644461, read_padding_first[0]]])


LSTM_WEIGHTS = {
    f"encoder.layers.0.lstm.{name}_l0{way}": gen(shape, k, scale)
    for way, (first, second, third, fourth) in {"": (1, 2, 3, 4), "_reverse": (11, 12, 13, 14)}.items()
    for name, shape, k, scale in (
        ("weight_ih", (8, 3), first, 1.0),
        ("weight_hh", (8, 2), second, 1.0),
        ("bias_ih", (8,), third, 0.5),
        ("bias_hh", (8,), fourth, 0.5),
    )
}
X_12 = np.array(
    [
        [
            [0.7671, 0.1735, -0.5018],
            [-0.941, -0.9377, -0.4933],
            [0.183, 0.7733, 0.9999],
            [0.7562, 0.1569, -0.5163],
        ],
        [
            [-0.9466, -0.9317, -0.4786],
            [0.1995, 0.7839, 0.9995],
            [0.7451, 0.1402, -0.5306],
            [-0.9519, -0.9255, -0.4638],
        ],
    ]
)
CONCAT = [
    [
        [0.2369713016, -0.007523131883, 0.1887474777, 0.002122374954],
        [0.03437978276, 0.3812702588, 0.0150044486, -0.001624636035],
        [-0.1962093249, 0.07456082008, -0.0609108266, 0.01033747623],
        [0.148055156, 0.1633617249, 0.177192712, 0.001654481405],
    ],
    [
        [0.01194765516, 0.4141785685, -0.0081063383, 0.07683644886],
        [-0.2685719634, 0.08091676272, -0.2064430893, 0.01064589072],
        [0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
    ],
]
SUM = [
    [
        [0.4257187792, -0.005400756929],
        [0.04938423137, 0.3796456227],
        [-0.2571201515, 0.08489829631],
        [0.3252478679, 0.1650162063],
    ],
    [[0.003841316858, 0.4910150174], [-0.4750150526, 0.09156265344], [0.0, 0.0], [0.0, 0.0]],
]
FINAL = [
    [0.148055156, 0.1633617249, 0.1887474777, 0.002122374954],
    [-0.2685719634, 0.08091676272, -0.0081063383, 0.07683644886],
]


CELL_12 = [
    [0.1906187422, 0.3331864032, 0.2648763596, 0.006648470724],
    [-0.3563234077, 0.5262869928, -0.03164988112, 0.09393042065],
]


@pytest.mark.parametrize(("way", "columns"), [("", slice(2)), ("_reverse", slice(2, 4))])
def test_12_states_of_a_padded_batch(way: str, columns: slice, tmp_path: Path) -> None:
    """h and c after the last real step; the backward direction is a forward one over the real steps, turned round."""
    spec = "decoder: {input: {kind: features, size: 3}, layers: [{kind: lstm, hidden_size: 2}]}"
    parts = {name: LSTM_WEIGHTS[f"encoder.layers.0.lstm.{name}_l0{way}"] for name in ("weight_ih", "weight_hh")}
    parts |= {name: LSTM_WEIGHTS[f"encoder.layers.0.lstm.{name}_l0{way}"] for name in ("bias_ih", "bias_hh")}
    both = Both(spec, {f"decoder.layers.0.lstm.{name}_l0": value for name, value in parts.items()}, tmp_path)
    x = X_12.copy()
    if way:
        x[0], x[1, :2] = x[0, ::-1], x[1, 1::-1]
    inputs = {"features": x, "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0]])}
    for _, state in both.step(inputs):
        agree(state["past_state.0.lstm.c"][:, 0], np.array(CELL_12)[:, columns])
        agree(state["past_state.0.lstm.h"][:, 0], np.array(FINAL)[:, columns])


OUTPUTS_12 = [("concat", "", CONCAT), ("sum", "", SUM), ("concat", "pool", FINAL)]


@pytest.mark.parametrize(("merge", "head", "want"), OUTPUTS_12)
def test_12_outputs_and_final_states_of_a_padded_batch(merge: str, head: str, want: object, tmp_path: Path) -> None:
    spec = f"""
encoder:
  input: {{kind: features, size: 3}}
  layers: [{{kind: lstm, hidden_size: 2, bidirectional: true, merge: {merge}}}]
"""
    both = Both(spec + ("head: {kind: embedding, pool: final_state}\n" if head else ""), LSTM_WEIGHTS, tmp_path)
    for out in both.run({"features": X_12, "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0]])}):
        agree(next(iter(out.values())), want)
    wrong = [[0.02097838366, 0.4071084234, 0.02315611511, -0.02097668903], [0.0] * 4]  # the last step of row 1
    assert not any(close(value, FINAL[1]) for value in wrong)


def test_12_what_follows_a_sum_is_told_its_width() -> None:
    spec = """
seqspec: 1
name: case
encoder:
  input: {kind: features, size: 3}
  d_model: 4
  layers:
    - {kind: lstm, hidden_size: 2, bidirectional: true, merge: %s}
    - block: [{kind: ffn, d_ff: 3}]
"""
    assert not seqspec.check(spec % "concat").has_errors
    with pytest.raises(seqspec.SpecError, match=r"4.*2|2.*4"):
        seqspec.load(spec % "sum")


GRU_13 = {
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


@pytest.mark.parametrize("update", ["keep", "write"])
@pytest.mark.parametrize("reset", ["after", "before"])
def test_13_where_the_reset_gate_acts(reset: str, update: str, tmp_path: Path) -> None:
    """With `write` z is 1 − z of `keep`: its rows are turned."""
    z = np.ones(9)
    z[3:6] = 1 if update == "keep" else -1
    layer, x = "decoder.layers.0.gru.", np.array([[[0.3115, 0.8504], [0.9894, 0.663], [0.0248, -0.6251]]])
    weights = {
        f"{layer}weight_ih_l0": z[:, None] * gen((9, 2), 1),
        f"{layer}weight_hh_l0": z[:, None] * gen((9, 3), 2),
        f"{layer}bias_ih_l0": z * gen((9,), 3, 0.5),
        f"{layer}bias_hh_l0": z * gen((9,), 4, 0.5),
    }
    spec = f"""
decoder:
  input: {{kind: features, size: 2}}
  layers: [{{kind: gru, hidden_size: 3, reset: {reset}, update: {update}}}]
"""
    both = Both(spec, weights, tmp_path)
    h = np.array([[[0.9989, 0.7344, 0.1245]]], np.float32)
    state = {"past_state.0.gru.h": h}
    other = GRU_13["before" if reset == "after" else "after"]
    for out, _ in both.step({"features": x}, ({k: torch.tensor(v) for k, v in state.items()}, state)):
        agree(out["last_hidden_state"][0], GRU_13[reset], not_=other)


def test_15_a_forget_bias_of_one(tmp_path: Path) -> None:
    spec = """
decoder:
  input: {kind: features, size: 1}
  layers: [{kind: lstm, hidden_size: 2, forget_bias: 1}]
"""
    started = seqspec.to_torch(named(spec)).state_dict()
    layer = "decoder.layers.0.lstm."
    total = (started[f"{layer}bias_ih_l0"] + started[f"{layer}bias_hh_l0"]).numpy()
    agree(total[2:4], [1, 1], not_=[2, 2], tolerance=1e-7)
    rows = np.zeros(8, np.float32)
    rows[2:4] = started[f"{layer}bias_ih_l0"][2:4]
    other = np.zeros(8, np.float32)
    other[2:4] = started[f"{layer}bias_hh_l0"][2:4]
    both = Both(spec, {f"{layer}bias_ih_l0": rows, f"{layer}bias_hh_l0": other}, tmp_path)
    state = {f"past_state.0.lstm.{k}": np.full((1, 1, 2), v, np.float32) for k, v in {"h": 0, "c": 1}.items()}
    steps = both.step({"features": np.zeros((1, 1, 1))}, ({k: torch.tensor(v) for k, v in state.items()}, state))
    for out, after in steps:
        agree(out["last_hidden_state"][0, 0], [0.3118562749] * 2, not_=[0.3378347121] * 2)
        agree(after["past_state.0.lstm.c"][0, 0], [0.7310585786] * 2, not_=[0.880797078] * 2)
        assert not close([0.5, 0.5], [0.7310585786] * 2)


def test_17_one_file_at_any_batch_and_with_a_state(tmp_path: Path) -> None:
    layer = "decoder.layers.0.gru."
    weights = {
        f"{layer}weight_ih_l0": gen((6, 3), 1),
        f"{layer}weight_hh_l0": gen((6, 2), 2),
        f"{layer}bias_ih_l0": gen((6,), 3, 0.5),
        f"{layer}bias_hh_l0": gen((6,), 4, 0.5),
    }
    spec = """
decoder:
  input: {kind: features, size: 3}
  layers: [{kind: gru, hidden_size: 2}]
"""
    both = Both(spec, weights, tmp_path)
    one = [
        [
            [-0.1407994922, -0.01617450625],
            [0.4690559576, 0.4448818692],
            [0.0643439497, 0.5188825471],
            [0.004100032619, 0.453080902],
        ]
    ]
    three = [
        [[0.4472626521, 0.6062315276], [-0.1248227917, 0.618429508]],
        [[0.435111757, -0.06368313138], [0.7161531511, 0.5517292726]],
        [[-0.3569445009, 0.1252643], [0.2457100849, 0.02092442372]],
    ]
    started = [
        [[0.9095936717, 0.7187250293], [0.1120674257, 0.7210824906]],
        [[0.7701377489, -0.003093142078], [0.8825292559, 0.4940022418]],
        [[-0.6975344781, -0.2142964724], [-0.02180486914, -0.1055062885]],
    ]
    for out in both.run({"features": gen((1, 4, 3), 11)}):
        agree(out["last_hidden_state"], one)
    for out in both.run({"features": gen((3, 2, 3), 13)}):
        agree(out["last_hidden_state"], three)
    state = {"past_state.0.gru.h": gen((3, 2), 20).astype(np.float32)[:, None]}
    for out, _ in both.step({"features": gen((3, 2, 3), 13)}, ({k: torch.tensor(v) for k, v in state.items()}, state)):
        agree(out["last_hidden_state"], started, not_=three)


SHAPES_17 = {
    "features": ["batch_size", "sequence_length", 3],
    "last_hidden_state": ["batch_size", "sequence_length", 2],
    "past_state.0.gru.h": ["batch_size", 1, 2],  # of one direction
    "present_state.0.gru.h": ["batch_size", 1, 2],
    "attention_mask": ["batch_size", "sequence_length"],
}


def test_17_the_file_declares_no_literal_of_an_example(tmp_path: Path) -> None:
    spec = "seqspec: 1\nname: case\ndecoder: {input: {kind: features, size: 3}, layers: [{kind: gru, hidden_size: 2}]}"
    graph = onnx.load(seqspec.to_onnx(spec, tmp_path / "out") / "model.onnx", load_external_data=False).graph
    for value in (*graph.input, *graph.output):
        axes = [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        assert axes == SHAPES_17[value.name]
