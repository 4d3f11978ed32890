"""Sessions against the PyTorch module with the same weights: whole, in chunks, padded, in batches and alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_targets import GENERATING, SMALL, SPLIT, STATEFUL, Array, Compiled, close, inputs, run_torch

import seqspec
from seqspec.runtime.state import MASK

Get = Callable[[str], Compiled]
OUTPUT = {name: "embedding" if name == "minilm" else "logits" for name in SMALL}


def first_rows(given: dict[str, Array], rows: slice) -> dict[str, Array]:
    return {name: a[rows] for name, a in given.items()}


def moving(name: str) -> str:
    """The input that goes on from call to call."""
    return "decoder_input_ids" if name in SPLIT else "features" if name == "gru-forecast" else "input_ids"


def chunk(name: str, given: dict[str, Array], start: int, end: int) -> dict[str, Array]:
    """A call's part of the inputs: the encoder's in the first one only."""
    part = {moving(name): given[moving(name)][:, start:end]}
    return part | ({"input_ids": given["input_ids"]} if name in SPLIT and start == 0 else {})


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("time", [1, 9])
@pytest.mark.parametrize("name", SMALL)
def test_whole(compiled: Get, name: str, time: int, batch: int) -> None:
    model = compiled(name)
    given = inputs(name, np.random.default_rng(1), batch, time, 5)
    want, state = run_torch(model, given)
    result = model.session.run(given)
    assert list(result) == [OUTPUT[name]]
    close(result[OUTPUT[name]], want)
    if name in STATEFUL:
        assert result.state is not None
        assert result.state.keys() - state.keys() <= {MASK}  # PyTorch keeps none where nothing is padded
        for key, tensor in state.items():
            close(result.state[key].astype(np.float32), tensor.float().numpy())
    else:
        assert result.state is None


@pytest.mark.parametrize("name", STATEFUL)
@pytest.mark.parametrize("cuts", [(1, 2, 3, 4, 5, 6, 7, 8), (3, 4), (8,)])
def test_in_chunks(compiled: Get, name: str, cuts: tuple[int, ...]) -> None:
    model = compiled(name)
    given = inputs(name, np.random.default_rng(2), 2, 9, 4)
    whole = model.session.run(given)
    state, parts = None, []
    for start, end in zip((0, *cuts), (*cuts, 9), strict=True):
        result = model.session.run(chunk(name, given, start, end), state)
        state = result.state
        parts.append(result["logits"])
    close(parts[-1] if name == "gru-forecast" else np.concatenate(parts, 1), whole["logits"])
    assert state is not None
    assert whole.state is not None
    windows = {s.past for s in model.session.signature.states if any("past_window" in str(size) for size in s.shape)}
    for key in state:
        wanted = whole.state[key]
        if key in windows:  # of 4 tokens: what no later query sees is dropped between calls
            assert state[key].shape[2] >= 3
            wanted = wanted[:, :, wanted.shape[2] - state[key].shape[2] :]
        close(state[key].astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("name", GENERATING)
def test_chunks_of_no_positions(compiled: Get, name: str) -> None:
    """They give nothing, as in PyTorch, and what comes behind them is what would have come without."""
    model = compiled(name)
    given = inputs(name, np.random.default_rng(2), 2, 5, 4)
    whole = model.session.run(given)
    parts, state = [], None
    for start, end in ((0, 0), (0, 2), (2, 2), (2, 5), (5, 5)):
        before, result = state, model.session.run(chunk(name, given, start, end), state)
        state = result.state
        assert state is not None
        parts.append(result[OUTPUT[name]])
        if start == end:
            assert parts[-1].shape == (2, 0, 61)
            assert parts[-1].dtype == np.float32
            assert before is None or state.keys() == before.keys()
            assert before is None or all(np.array_equal(state[key], before[key]) for key in state)
    close(np.concatenate(parts, 1), whole[OUTPUT[name]])
    want, kept = run_torch(model, chunk(name, given, 0, 0))
    first = model.session.run(chunk(name, given, 0, 0)).state
    assert want.shape == (2, 0, 61)
    assert first is not None
    for key, tensor in kept.items():
        close(first[key].astype(np.float32), tensor.float().numpy())


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_padded_rows_are_as_they_are_alone(compiled: Get, name: str, left: bool) -> None:
    model, lengths, rng = compiled(name), (9, 6, 1), np.random.default_rng(3)
    rows = [inputs(name, rng, 1, n, n) for n in lengths]
    batch: dict[str, Array] = {}
    real = np.zeros((3, 9), bool)
    for key in rows[0]:
        parts = [row[key][0] for row in rows]
        table = np.zeros((3, 9, *parts[0].shape[1:]), parts[0].dtype)
        for n, part in enumerate(parts):
            place = slice(9 - len(part), None) if left else slice(0, len(part))
            table[n, place], real[n, place] = part, True
        batch[key] = table
        batch["decoder_attention_mask" if key.startswith("decoder") else "attention_mask"] = real.astype(np.int64)
    got = model.session.run(batch)[OUTPUT[name]]
    for n, row in enumerate(rows):
        want = model.session.run(row)[OUTPUT[name]][0]
        close(got[n][real[n]] if want.ndim == 2 else got[n], want)


@pytest.mark.parametrize("name", ["lstm-sentiment", "minilm", "nmt-bahdanau", "transformer-base"])
def test_padding_is_found_by_its_id(compiled: Get, name: str) -> None:
    model = compiled(name)
    given = inputs(name, np.random.default_rng(4), 2, 6, 6)
    given["input_ids"][1, 4:] = 0
    mask = np.array([[1] * 6, [1, 1, 1, 1, 0, 0]])
    close(model.session.run(given)[OUTPUT[name]], model.session.run(given | {"attention_mask": mask})[OUTPUT[name]])


def test_a_decoder_may_start_with_the_pad_id(compiled: Get) -> None:
    model = compiled("transformer-base")
    given = inputs("transformer-base", np.random.default_rng(5), 2, 4, 5)
    given["decoder_input_ids"][:, 0] = 0
    want, _ = run_torch(model, given)
    close(model.session.run(given)["logits"], want)
    ones = np.ones((2, 4), np.int64)
    close(model.session.run(given | {"decoder_attention_mask": ones})["logits"], want)


@pytest.mark.parametrize("dtype", [bool, np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("whole", [False, True])
def test_a_mask_covers_the_chunk_or_all(compiled: Get, dtype: type, whole: bool) -> None:
    model = compiled("gpt2")
    given = inputs("gpt2", np.random.default_rng(6), 2, 8)["input_ids"]
    mask = np.array([[1, 1, 1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0, 1, 1]])
    want = model.session.run({"input_ids": given, "attention_mask": mask})["logits"][:, 5:]
    first = model.session.run({"input_ids": given[:, :5], "attention_mask": mask[:, :5].astype(dtype)})
    second = (mask if whole else mask[:, 5:]).astype(dtype)
    got = model.session.run({"input_ids": given[:, 5:], "attention_mask": second}, first.state)["logits"]
    close(got[second[:, -3:] != 0], want[mask[:, 5:] != 0])


def test_smaller_integers_are_taken_as_ids(compiled: Get) -> None:
    model = compiled("gpt2")
    given = inputs("gpt2", np.random.default_rng(7), 2, 4)["input_ids"]
    want = model.session.run({"input_ids": given})["logits"]
    np.testing.assert_array_equal(model.session.run({"input_ids": given.astype(np.int32)})["logits"], want)
    np.testing.assert_array_equal(model.session.run({"input_ids": given.tolist()})["logits"], want)


@pytest.mark.parametrize("name", GENERATING)
def test_a_state_goes_from_torch_to_onnx_and_back(compiled: Get, name: str) -> None:
    model = compiled(name)
    given = inputs(name, np.random.default_rng(8), 2, 7, 5)
    want = model.session.run(given)["logits"][:, 4:]
    masked = {"decoder_attention_mask" if name in SPLIT else "attention_mask": np.ones((2, 4), np.int64)}
    _, of_torch = run_torch(model, chunk(name, given, 0, 4) | masked)
    of_onnx = model.session.run(chunk(name, given, 0, 4)).state
    assert of_onnx is not None
    rest = chunk(name, given, 4, 7)
    close(model.session.run(rest, {k: v.numpy() for k, v in of_torch.items()})["logits"], want)
    close(run_torch(model, rest, {k: torch.from_numpy(v) for k, v in of_onnx.items()})[0], want)


@pytest.mark.parametrize("name", ["gpt2", "nmt-bahdanau"])
def test_rows_of_a_state_can_be_picked(compiled: Get, name: str) -> None:
    model = compiled(name)
    given = inputs(name, np.random.default_rng(9), 3, 6, 4)
    state = model.session.run(chunk(name, given, 0, 4)).state
    assert state is not None
    rows = [2, 0, 0]
    got = model.session.run({moving(name): given[moving(name)][rows, 4:]}, state.reorder(rows))["logits"]
    close(got, model.session.run({k: a[rows] for k, a in given.items()})["logits"][:, 4:])


def test_the_encoder_s_inputs_are_read_once(compiled: Get) -> None:
    model = compiled("transformer-base")
    given = inputs("transformer-base", np.random.default_rng(10), 2, 5, 4)
    state = model.session.run(chunk("transformer-base", given, 0, 3)).state
    rest = chunk("transformer-base", given, 3, 5)
    without = model.session.run(rest, state)["logits"]
    again = model.session.run(rest | {"input_ids": np.ones((7, 3), np.int64)}, state)["logits"]
    np.testing.assert_array_equal(without, again)


def test_a_moved_folder_opens(compiled: Get, tmp_path: Path) -> None:
    model = compiled("nmt-bahdanau")
    given = inputs("nmt-bahdanau", np.random.default_rng(11), 2, 4, 3)
    moved = shutil.copytree(model.folder, tmp_path / "ein Ort" / "später")
    np.testing.assert_array_equal(seqspec.Session(moved).run(given)["logits"], model.session.run(given)["logits"])


def test_token_types_may_be_given_or_left_out(compiled: Get) -> None:
    model = compiled("minilm")
    given = inputs("minilm", np.random.default_rng(12), 2, 5)
    types = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 0, 1]])
    typed = given | {"token_type_ids": types}
    close(model.session.run(typed)["embedding"], run_torch(model, typed)[0])
    without = model.session.run(given)["embedding"]
    np.testing.assert_array_equal(without, model.session.run(given | {"token_type_ids": types * 0})["embedding"])
    assert np.abs(without - model.session.run(given | {"token_type_ids": types})["embedding"]).max() > 1e-3


def test_nan_at_padding_reaches_nothing(compiled: Get) -> None:
    model = compiled("gru-forecast")
    given = inputs("gru-forecast", np.random.default_rng(13), 2, 6)
    mask = np.array([[1, 1, 1, 1, 0, 0], [1] * 6])
    clean = model.session.run(given | {"attention_mask": mask})["logits"]
    given["features"][0, 4:] = np.nan
    np.testing.assert_array_equal(model.session.run(given | {"attention_mask": mask})["logits"], clean)


def test_what_was_real_is_carried_where_nothing_else_is(tmp_path: Path) -> None:
    """Positions count real tokens, also where no layer looks back."""
    text = """
        seqspec: 1
        name: counting
        encoder:
          input: {kind: tokens, vocab_size: 9, pad_id: 1, d_model: 4}
          position: {kind: learned, max_length: 8}
          layers: [{block: [{kind: ffn, d_ff: 3}]}]
        head: {kind: masked_lm}"""
    session = seqspec.Session(seqspec.to_onnx(text, tmp_path / "out", seed=1))
    ids = np.array([[2, 1, 3, 4, 5]])
    whole = session.run({"input_ids": ids})
    state, parts = None, []
    for start, stop in ((0, 2), (2, 3), (3, 5)):
        made = session.run({"input_ids": ids[:, start:stop]}, state)
        state = made.state
        parts.append(made["logits"])
    np.testing.assert_array_equal(np.concatenate(parts, 1), whole["logits"])
    np.testing.assert_array_equal(state["past_state.attention_mask"], ids != 1)


def test_a_session_says_what_it_is(compiled: Get) -> None:
    session = compiled("llama-3.2-1b").session
    assert repr(session) == f"<Session {session.path}: input_ids, attention_mask -> logits, on CPUExecutionProvider>"
