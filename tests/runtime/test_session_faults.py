"""What a Session refuses, with which code, and what the message names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_targets import Compiled, fault, inputs

import seqspec
from seqspec.diagnostics import RuntimeFault

Get = Callable[[str], Compiled]
IDS = np.array([[5, 6, 7]])


def test_input_names(compiled: Get) -> None:
    session = compiled("gpt2").session
    with fault("SEQ502", "input_ids", "attention_mask"):
        session.run({})
    with fault("SEQ503", "input_id", "input_ids"):
        session.run({"input_id": IDS})
    with fault("SEQ503", "position_ids"):
        session.run({"input_ids": IDS, "position_ids": IDS})
    with fault("SEQ502", "decoder_input_ids"):
        compiled("transformer-base").session.run({"input_ids": IDS})


@pytest.mark.parametrize("array", [IDS[0], IDS[None], np.int64(3)])
def test_rank(compiled: Get, array: np.ndarray) -> None:
    with fault("SEQ504", "input_ids", "[batch_size, sequence_length]", str(list(array.shape))):
        compiled("gpt2").session.run({"input_ids": array})


def test_sizes(compiled: Get) -> None:
    with fault("SEQ504", "features", "5", "[2, 3, 4]"):
        compiled("gru-forecast").session.run({"features": np.zeros((2, 3, 4), np.float32)})
    with fault("SEQ504", "token_type_ids", "[1, 2]", "[1, 3]"):
        compiled("minilm").session.run({"input_ids": IDS, "token_type_ids": IDS[:, :2] * 0})
    with fault("SEQ504", "decoder_input_ids", "[2, 3]"):
        compiled("transformer-base").session.run({"input_ids": IDS, "decoder_input_ids": np.tile(IDS, (2, 1))})
    with fault("SEQ504", "attention_mask", "[1, 4]", "[1, 3]"):
        compiled("gpt2").session.run({"input_ids": IDS, "attention_mask": np.ones((1, 4), int)})


def test_types(compiled: Get) -> None:
    with fault("SEQ505", "input_ids", "float64"):
        compiled("gpt2").session.run({"input_ids": IDS * 1.0})
    with fault("SEQ505", "input_ids", "bool"):
        compiled("gpt2").session.run({"input_ids": IDS > 5})
    with fault("SEQ505", "features", "float64", "float32"):
        compiled("gru-forecast").session.run({"features": np.zeros((2, 3, 5))})
    with fault("SEQ505", "attention_mask", "float32"):
        compiled("gpt2").session.run({"input_ids": IDS, "attention_mask": np.ones((1, 3), np.float32)})


def test_empty(compiled: Get) -> None:
    for name, shape in (("gpt2", (0, 3)), ("gpt2", (0, 0)), ("minilm", (2, 0)), ("lstm-sentiment", (2, 0))):
        with fault("SEQ513", "input_ids", str(list(shape))):
            compiled(name).session.run({"input_ids": np.zeros(shape, np.int64)})
    state = compiled("gpt2").session.run({"input_ids": IDS}).state
    with fault("SEQ513", "input_ids", "[0, 1]"):
        compiled("gpt2").session.run({"input_ids": np.zeros((0, 1), np.int64)}, state)


@pytest.mark.parametrize("wrong", [61, -1, 2**40])
def test_vocabulary(compiled: Get, wrong: int) -> None:
    with fault("SEQ510", "input_ids", "[1, 2]", str(wrong), "60"):
        compiled("gpt2").session.run({"input_ids": np.array([[1, 2, 3], [4, 5, wrong]])})
    with fault("SEQ510", "token_type_ids", "1"):
        compiled("minilm").session.run({"input_ids": IDS, "token_type_ids": IDS * 0 + 2})


def test_the_table_of_positions_ends(compiled: Get) -> None:
    session = compiled("gpt2").session
    full = np.ones((1, 19), np.int64)
    state = session.run({"input_ids": full}).state
    with fault("SEQ506", "input_ids", "20", "19"):
        session.run({"input_ids": np.ones((1, 20), np.int64)})
    with fault("SEQ506", "20", "19"):
        session.run({"input_ids": full[:, :1]}, state)
    # padding takes no position
    longer = np.ones((1, 25), np.int64)
    mask = (np.arange(25) >= 6)[None]
    got = session.run({"input_ids": longer, "attention_mask": mask})["logits"][:, 6:]
    np.testing.assert_allclose(got, session.run({"input_ids": full})["logits"], atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_the_table_of_positions_ends_for_each_document(target: str, tmp_path: Path) -> None:
    """A row of several may be longer than the table, over a few calls too."""
    text = """
        seqspec: 1
        name: packed
        decoder:
          input: {kind: tokens, vocab_size: 9, d_model: 4}
          position: {kind: learned, max_length: 3}
          mask: {all: [causal, documents]}
          layers: [{block: [{kind: attention, heads: 1}]}]
        head: {kind: lm}"""
    session = seqspec.Session(seqspec.to_onnx(text, tmp_path / "out", target=target))
    model = seqspec.to_torch(text).eval()
    row, documents = np.ones((1, 6), np.int64), np.array([[5, 5, 5, 2, 2, 5]])
    with fault("SEQ506", "document 5", "document_ids", "4 positions", "3"):
        session.run({"input_ids": row, "document_ids": documents})
    with fault("SEQ506", "document 0", "4 positions"):
        session.run({"input_ids": row[:, :4]})
    fits = {"input_ids": row[:, :5], "document_ids": documents[:, :5]}
    first = session.run(fits)
    with torch.no_grad():
        want = model(**{name: torch.from_numpy(array) for name, array in fits.items()})
    np.testing.assert_allclose(first["logits"], want.logits.numpy(), atol=1e-5)
    session.run({"input_ids": row[:, :1], "document_ids": documents[:, 4:5]}, first.state)
    with fault("SEQ506", "document 5", "4 positions"):
        session.run({"input_ids": row[:, :1], "document_ids": documents[:, 5:]}, first.state)
    # padding is of no document
    mask = np.array([[1, 1, 1, 1, 1, 0]])
    session.run({"input_ids": row, "document_ids": documents, "attention_mask": mask})


def test_the_table_of_positions_ends_for_each_document_of_a_sound(tmp_path: Path) -> None:
    """It has room for positions, of which there are half as many as frames."""
    text = """
        seqspec: 1
        name: packed
        encoder:
          input: {kind: audio, mel_bins: 2, convolutions: [{channels: 4, kernel: 3, stride: 2}]}
          position: {kind: learned, max_length: 2}
          mask: documents
          layers: [{block: [{kind: attention, heads: 1}]}]"""
    session = seqspec.Session(seqspec.to_onnx(text, tmp_path / "out"))
    frames = np.ones((1, 2, 7), np.float32)
    assert session.run({"input_features": frames, "document_ids": [[1, 1, 2, 2]]})["last_hidden_state"].shape[1] == 4
    with fault("SEQ506", "document 1", "3 positions", "2"):
        session.run({"input_features": frames, "document_ids": [[1, 1, 1, 2]]})
    mask = np.array([[0, 1, 0, 1, 1, 1, 0]])
    session.run({"input_features": frames, "attention_mask": mask, "document_ids": [[1, 1, 1, 1]]})


def test_states(compiled: Get) -> None:
    session = compiled("gpt2").session
    state = session.run({"input_ids": np.tile(IDS, (2, 1))}).state
    assert state is not None
    with fault("SEQ509", "batch_size", "2"):
        session.run({"input_ids": IDS}, state)
    with fault("SEQ509", "past_key_values.0.key"):
        session.run({"input_ids": IDS}, {k: v for k, v in state.items() if k != "past_key_values.0.key"})
    with fault("SEQ509", "nonsense"):
        session.run({"input_ids": IDS}, state | {"nonsense": IDS})
    with fault("SEQ509", "past_key_values.1.value", "float64"):
        session.run({"input_ids": IDS}, state | {"past_key_values.1.value": np.zeros((2, 3, 3, 6))})
    with fault("SEQ509", "past_key_values.0.value"):
        session.run({"input_ids": IDS}, state | {"past_key_values.0.value": state["past_key_values.0.value"][:, :, :2]})
    other = compiled("hybrid-window").session.run({"input_ids": IDS}).state
    with fault("SEQ509"):
        session.run({"input_ids": IDS}, other)
    with fault("SEQ512"):
        compiled("minilm").session.run({"input_ids": IDS}, {})


def test_providers(compiled: Get) -> None:
    folder = compiled("gpt2").folder
    assert compiled("gpt2").session.providers == ["CPUExecutionProvider"]
    with fault("SEQ501", "CUDAExecutionProvider"):
        seqspec.Session(folder, providers=["CUDAExecutionProvider"])
    with fault("SEQ501", "NoSuchProvider"):
        seqspec.Session(folder, providers=["CPUExecutionProvider", "NoSuchProvider"])


def test_a_provider_that_onnxruntime_drops(compiled: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """As onnxruntime-gpu does without a driver: it lists CUDA, and opens a session on the CPU."""
    import onnxruntime

    real, cpu = onnxruntime.InferenceSession, "CPUExecutionProvider"
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", cpu])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda f, o, **_: real(f, o, providers=[cpu]))
    with fault("SEQ501", "CUDAExecutionProvider", "does not start"):
        seqspec.Session(compiled("gpt2").folder, providers=["CUDAExecutionProvider"])


@pytest.fixture
def copy(compiled: Get, tmp_path: Path) -> Path:
    return shutil.copytree(compiled("transformer-base").folder, tmp_path / "copy")


@pytest.mark.parametrize("file", ["encoder.onnx", "decoder.onnx", "model.onnx.data", "spec.yaml"])
def test_damage_is_found(copy: Path, file: str) -> None:
    content = (copy / file).read_bytes()
    for place in (0, len(content) // 2, len(content) - 1):
        flipped = bytearray(content)
        flipped[place] ^= 1
        (copy / file).write_bytes(flipped)
        with fault("SEQ507", file, "SHA-256"):
            seqspec.Session(copy)
    (copy / file).write_bytes(content[:-1])
    with fault("SEQ507", file, "bytes"):
        seqspec.Session(copy)
    (copy / file).unlink()
    with fault("SEQ507", file, "missing"):
        seqspec.Session(copy)


def test_swapped_files_are_found(copy: Path) -> None:
    (copy / "encoder.onnx").rename(copy / "x")
    (copy / "decoder.onnx").rename(copy / "encoder.onnx")
    (copy / "x").rename(copy / "decoder.onnx")
    with fault("SEQ507"):
        seqspec.Session(copy)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"seqspec": 2}, "SEQ508"),
        ({"seqspec": "1"}, "SEQ508"),
        ({"files": {"../x": {"size": 1, "sha256": ""}}}, "SEQ507"),
        ({"graphs": {"model": "/etc/hostname"}}, "SEQ507"),
        ({"graphs": {"model": "other.onnx"}}, "SEQ507"),
        ({"graphs": []}, "SEQ507"),
        ({"signature": {}}, "SEQ507"),
        ({"signature": {"inputs": [{"name": "x", "shape": ["f(x"], "dtype": "int64"}]}}, "SEQ507"),
        ({"inputs": {"input_ids": {"nonsense": 1}}}, "SEQ507"),
        ({"files": 3}, "SEQ507"),
    ],
)
def test_manifests_that_lie(copy: Path, change: dict[str, object], code: str) -> None:
    file = copy / "seqspec.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with fault(code):
        seqspec.Session(copy)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_manifests_that_are_none(copy: Path, content: bytes) -> None:
    (copy / "seqspec.json").write_bytes(content)
    with fault("SEQ507", "seqspec.json"):
        seqspec.Session(copy)


def test_no_folder(tmp_path: Path) -> None:
    for path, code in ((tmp_path, "SEQ507"), (tmp_path / "none", "SEQ507"), (Path(__file__), "SEQ516")):
        with fault(code):
            seqspec.Session(path)


def test_a_torch_folder_is_no_session_s(compiled: Get, tmp_path: Path) -> None:
    from seqspec import api

    folder = api.write_torch(compiled("gru-forecast").model, tmp_path / "out")
    with fault("SEQ516", "PyTorch", "--to onnx"):
        seqspec.Session(folder)


def test_faults_are_runtime_faults(compiled: Get) -> None:
    with pytest.raises(RuntimeFault):
        compiled("gpt2").session.run(inputs("gru-forecast", np.random.default_rng(0), 1, 2))
