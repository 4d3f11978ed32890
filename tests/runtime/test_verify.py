"""Verification: it passes what is right, and finds what is wrong, whoever made it wrong."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_targets import EXAMPLES, GENERATING, SMALL, Compiled, fault, inputs, random_weights, spec

import seqspec
from seqspec import api
from seqspec.backends.directory import digest, record
from seqspec.runtime import verify as verifying
from seqspec.runtime.manifest import read
from seqspec.runtime.recover import recover
from seqspec.runtime.torch_folder import TOLERANCE
from seqspec.runtime.verify import tolerance, verify

Get = Callable[[str], Compiled]


def reseal(folder: Path) -> None:
    """The manifest brought up to the files, as someone would who changes them on purpose."""
    file = folder / "seqspec.json"
    manifest = json.loads(file.read_text())
    manifest["files"] = {name: record(folder / name) for name in manifest["files"]}
    manifest["sha256"] = digest(manifest)
    file.write_text(json.dumps(manifest))


@pytest.fixture
def copy(compiled: Get, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: shutil.copytree(compiled(name).folder, tmp_path / name)


@pytest.mark.parametrize("name", SMALL)
def test_what_was_compiled_agrees(compiled: Get, name: str) -> None:
    result = seqspec.verify(compiled(name).folder, seed=5)
    assert result.passed
    assert result.judge == "PyTorch in float64"
    assert result.note == ""
    ways = {d.way for d in result.differences}
    assert {"padded right", "padded left"} <= ways
    assert any(way.startswith("alone, length 1") for way in ways)
    assert ("step by step" in ways) == (name in GENERATING or name == "gru-forecast")
    # what is compared is not nothing
    assert all(d.largest > 1e-3 for d in result.differences)
    assert any(d.absolute > 0 for d in result.differences)


@pytest.mark.parametrize("name", SMALL)
def test_weights_come_back_from_the_files(compiled: Get, name: str) -> None:
    """Transposed, stacked, with gates reordered: all the way back, to the bit."""
    model = compiled(name)
    found = recover(read(model.folder), model.graph)
    assert found.keys() == model.weights.keys()
    summed = {n for n in found if "attend" not in n and n.endswith(("bias_ih", "bias_hh"))}  # a cell keeps sums
    for parameter in found.keys() - summed:
        np.testing.assert_array_equal(found[parameter], model.weights[parameter], parameter)


@pytest.mark.parametrize("name", ["gpt2", "nmt-bahdanau"])
def test_without_torch_the_reference_judges(compiled: Get, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = compiled(name).folder  # with torch, if no test compiled it before
    monkeypatch.setitem(sys.modules, "seqspec.backends.torch", None)
    result = verify(folder)
    assert result.judge == "the NumPy reference in float64"
    assert result.passed


@pytest.mark.parametrize("name", SMALL)
def test_float16(name: str, tmp_path: Path) -> None:
    model = spec(name)
    weights = random_weights(seqspec.build(model))
    folder = seqspec.to_onnx(model, tmp_path / "out", weights=weights, dtype="float16")
    result = verify(folder)
    assert result.passed
    assert result.worst is not None
    assert result.worst.relative > 1e-5


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_weights_are_found_in_files_for_a_gpu(dtype: str, tmp_path: Path) -> None:
    model = spec("llama-3.2-1b")
    weights = random_weights(seqspec.build(model))
    folder = seqspec.to_onnx(model, tmp_path / "out", weights=weights, dtype=dtype, target="cuda", verify=False)
    found = recover(read(folder), seqspec.build(model))
    assert found.keys() == weights.keys()
    step = {"float32": 0, "float16": 2**-11, "bfloat16": 2**-8}[dtype]
    for name, array in weights.items():
        np.testing.assert_allclose(found[name], array, rtol=step, atol=1e-7 * (dtype != "float32"), err_msg=name)


def change_a_node(file: Path, op_type: str, replacement: str) -> None:
    model = onnx.load(file, load_external_data=False)
    node = next(n for n in model.graph.node if n.op_type == op_type)
    node.op_type = replacement
    onnx.save(model, file)


@pytest.mark.parametrize(
    ("name", "file", "op_type", "replacement"),
    [
        ("transformer-base", "encoder.onnx", "Relu", "Tanh"),
        ("transformer-base", "decoder.onnx", "Relu", "Tanh"),
        ("llama-3.2-1b", "model.onnx", "Sigmoid", "Tanh"),
        ("nmt-bahdanau", "encoder.onnx", "Tanh", "Sigmoid"),
    ],
)
def test_a_wrong_graph_is_found(
    copy: Callable[[str], Path], name: str, file: str, op_type: str, replacement: str
) -> None:
    folder = copy(name)
    change_a_node(folder / file, op_type, replacement)
    reseal(folder)
    result = verify(folder)
    assert not result.passed
    with fault("SEQ406", "differs from PyTorch in float64"):
        result.require()


def test_wrong_weights_are_found_where_the_right_ones_are_known(compiled: Get, copy: Callable[[str], Path]) -> None:
    model, folder = compiled("gpt2"), copy("gpt2")
    data = np.fromfile(folder / "model.onnx.data", np.float32)
    data[len(data) // 2 :] += 0.01
    data.tofile(folder / "model.onnx.data")
    reseal(folder)
    assert not verify(folder, weights=model.weights).passed
    assert verify(folder).passed  # the files alone are a model like any other


def test_a_spec_that_is_not_the_files_s(copy: Callable[[str], Path]) -> None:
    folder = copy("gpt2")
    other = (folder / "spec.yaml").read_text().replace("gelu_tanh", "relu")
    (folder / "spec.yaml").write_text(other)
    reseal(folder)
    assert not verify(folder).passed
    (folder / "spec.yaml").write_text(other.replace("d_ff: 40", "d_ff: 41"))
    reseal(folder)
    with fault("SEQ507", "tensor"):
        verify(folder)


def test_what_fails_leaves_the_old_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = seqspec.to_onnx(spec("gpt2"), tmp_path / "out", seed=1)
    before = {f.name: f.read_bytes() for f in folder.iterdir()}
    monkeypatch.setattr(verifying, "tolerance", lambda depth, dtype: 1e-12)
    monkeypatch.setattr(verifying, "_AMPLIFIED", 0)
    with fault("SEQ406", "nothing was written"):
        seqspec.to_onnx(spec("gpt2"), tmp_path / "out", seed=2)
    with fault("SEQ406"):
        seqspec.to_onnx(spec("gpt2"), tmp_path / "new", seed=2)
    assert {f.name: f.read_bytes() for f in folder.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    seqspec.to_onnx(spec("gpt2"), tmp_path / "new", seed=2, verify=False)


@pytest.mark.parametrize("name", ["hybrid-window", "gpt2", "transformer-base"])
def test_large_models_are_checked_layer_by_layer(
    compiled: Get, copy: Callable[[str], Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "LARGEST", 10)
    model = compiled(name)
    for weights in (None, model.weights):
        result = verify(model.folder, weights=weights)
        assert result.passed
        assert "each distinct layer was checked once" in result.note
    states = {d.name for d in result.differences if d.name.endswith("key")}
    assert len(states) == 2 if name != "gpt2" else 1
    # a tensor of a layer that is left out
    folder = copy(name)
    file = list(read(folder).graphs.values())[-1]
    tensors = [t for t in onnx.load(file, load_external_data=False).graph.initializer if t.external_data]
    last = max(tensors, key=lambda t: t.name)
    offset = next(int(e.value) for e in last.external_data if e.key == "offset")
    content = bytearray((folder / "model.onnx.data").read_bytes())
    content[offset + 2] ^= 64
    (folder / "model.onnx.data").write_bytes(content)
    reseal(folder)
    with fault("SEQ406", "tensor"):
        verify(folder, weights=model.weights)


def test_tolerances() -> None:
    assert tolerance(8, "float32") == 2e-6
    assert tolerance(9, "float32") == 5e-6
    assert tolerance(1, "float16") == 2**-7


@pytest.mark.parametrize("name", SMALL)
def test_a_torch_folder_agrees_with_the_reference(name: str, tmp_path: Path) -> None:
    model = spec(name)
    folder = api.write_torch(model, tmp_path / "out", weights=random_weights(seqspec.build(model)))
    result = seqspec.verify(folder)
    assert result.passed
    assert result.judge == "the NumPy reference in float64"
    assert set(result.limits.values()) == {TOLERANCE}
    (folder / "model.py").write_text("import os\nos.abort()\n")
    reseal(folder)
    with fault("SEQ508", "model.py"):  # a file from anywhere is not executed
        seqspec.verify(folder)


def test_examples_are_what_is_tested() -> None:
    assert {f.stem for f in EXAMPLES.glob("*.yaml")} >= SMALL.keys()


@pytest.mark.parametrize(
    ("stack", "mask", "names"),
    [
        ("decoder", "{all: [causal, documents]}", {"document_ids"}),
        ("decoder", "{all: [causal, {kind: given, name: allowed}]}", {"allowed"}),
        ("encoder", "{kind: given, name: allowed}", {"allowed"}),
        ("encoder", "prefix", {"prefix_length"}),
        ("decoder", "{any: [causal, prefix]}", {"prefix_length"}),
    ],
)
def test_inputs_of_masks_are_handed_in_every_way(stack: str, mask: str, names: set[str], tmp_path: Path) -> None:
    text = f"""
        seqspec: 1
        name: masked
        {stack}:
          input: {{kind: tokens, vocab_size: 31, pad_id: 0}}
          d_model: 16
          position: rope
          {"causal: false" if "prefix" in mask else ""}
          layers: [{{repeat: 2, block: [{{kind: attention, heads: 2, mask: {mask}}}, {{kind: ffn, d_ff: 16}}]}}]
        head: {{kind: lm}}"""
    folder = seqspec.to_onnx(text, tmp_path / "out")
    assert {p.name for p in seqspec.Session(folder).inputs} == {"input_ids", "attention_mask"} | names
    assert verify(folder, seed=3).passed


@pytest.mark.parametrize("source", ["{kind: tokens, vocab_size: 9, d_model: 4}", "{kind: audio, mel_bins: 3, FRONT}"])
def test_an_encoder_has_a_length_of_its_own_where_no_state_says_so(source: str, tmp_path: Path) -> None:
    """A pooled head reads all of time, so that there is one call, and both stacks are read in it."""
    text = f"""
        seqspec: 1
        name: pooled
        encoder:
          input: {source.replace("FRONT", "convolutions: [{channels: 4, kernel: 3, stride: 2}]")}
          layers: [{{kind: gru, hidden_size: 4}}]
        decoder:
          input: {{kind: tokens, vocab_size: 9, d_model: 4}}
          layers: [{{kind: gru, hidden_size: 4, attend: {{from: encoder, return_weights: true}}}}]
        head: {{kind: embedding, pool: max}}"""
    folder = seqspec.to_onnx(text, tmp_path / "out")
    result = verify(folder, seed=3)
    assert result.passed
    assert "padded left" in {d.way for d in result.differences if d.name == "attentions.0"}


@pytest.mark.parametrize("source", ["{kind: features, size: 3}", "{kind: audio, mel_bins: 3, FRONT}"])
@pytest.mark.parametrize("pool", ["max", "last"])
def test_a_prefix_lies_in_the_sequence_of_its_own_stack(source: str, pool: str, tmp_path: Path) -> None:
    """An encoder's may be shorter than the decoder's, and the positions of a sound are fewer than its frames."""
    text = f"""
        seqspec: 1
        name: prefixed
        encoder:
          input: {source.replace("FRONT", "convolutions: [{channels: 4, kernel: 3, stride: 2}]")}
          d_model: 4
          mask: {{any: [causal, prefix]}}
          layers: [{{block: [{{kind: attention, heads: 2}}]}}]
        decoder:
          input: {{kind: tokens, vocab_size: 9, d_model: 4}}
          layers: [{{kind: gru, hidden_size: 4, attend: {{from: encoder}}}}]
        head: {{kind: embedding, pool: {pool}}}"""
    folder = seqspec.to_onnx(text, tmp_path / "out", verify=False)
    for seed in range(3):
        assert verify(folder, seed=seed).passed


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("mask", ["documents", "{kind: given, name: allowed}", "prefix"])
def test_masks_of_a_sound_are_told_its_positions(stride: int, mask: str, tmp_path: Path) -> None:
    """These are fewer than its frames, and stand in front even where the frames are padded on the left."""
    text = f"""
        seqspec: 1
        name: heard
        decoder:
          causal: false
          input: {{kind: audio, mel_bins: 3, convolutions: [{{channels: 4, kernel: 3, stride: {stride}}}]}}
          position: rope
          mask: {{any: [{{kind: window, size: 1}}, {mask}]}}
          layers: [{{block: [{{kind: attention, heads: 2}}]}}]"""
    folder = seqspec.to_onnx(text, tmp_path / "out", verify=False)
    for seed in range(3):
        result = verify(folder, seed=seed)
        assert result.passed
        assert "padded left" in {d.way for d in result.differences}


@pytest.mark.parametrize("position", ["{kind: learned, max_length: 4}", "{kind: rope, scaling: SCALING}"])
def test_lengths_are_limited_where_documents_count_positions(position: str, tmp_path: Path) -> None:
    """Sequences fit the table, and steps stay below the length from which angles change."""
    scaling = "{kind: dynamic, factor: 2.0, original_max_length: 8}"
    text = f"""
        seqspec: 1
        name: packed
        decoder:
          input: {{kind: tokens, vocab_size: 9, d_model: 4}}
          position: {position.replace("SCALING", scaling)}
          mask: {{all: [causal, documents]}}
          layers: [{{block: [{{kind: attention, heads: 1}}]}}]
        head: {{kind: lm}}"""
    folder = seqspec.to_onnx(text, tmp_path / "out", verify=False)
    for seed in range(3):
        result = verify(folder, seed=seed)
        assert result.passed
        assert "step by step" in {d.way for d in result.differences}


AMPLIFYING = """
    seqspec: 1
    name: tiny
    decoder:
      input: {kind: tokens, vocab_size: 7, pad_id: 0}
      d_model: 2
      position: sinusoidal
      norm: {kind: layernorm, eps: 1.0e-12}
      layers: [{repeat: 3, block: [{kind: attention, heads: 1}, {kind: ffn, d_ff: 3}]}]
    head: {kind: lm}"""


@pytest.mark.parametrize("seed", [32, 37])
def test_roundings_that_the_weights_amplify_are_no_fault(seed: int, tmp_path: Path) -> None:
    """A norm over two channels nearly equal amplifies; what float32 costs is asked of models beside this one, too."""
    random = np.random.default_rng(seed)
    params = seqspec.build(seqspec.load(AMPLIFYING)).root.params
    weights = {p.name: random.standard_normal([int(str(n)) for n in p.shape]).astype(np.float32) for p in params}
    folder = seqspec.to_onnx(AMPLIFYING, tmp_path / "out", weights=weights)
    right = verify(folder, weights=weights)
    assert right.passed
    assert max(right.limits.values()) < 1e-4
    # weights that are off by one part in ten thousand are told from that all the same
    for name in ("decoder.layers.1.attention.v_proj.weight", "decoder.layers.2.attention.k_proj.weight", "head.weight"):
        wrong = verify(folder, weights=weights | {name: weights[name] * np.float32([1, 1 + 1e-4])})
        assert not wrong.passed, name
        assert max(wrong.limits.values()) < 1e-4


@pytest.mark.parametrize("name", ["gpt2", "nmt-luong"])
def test_files_that_are_links(compiled: Get, tmp_path: Path, name: str) -> None:
    """As in the cache of a hub: a folder of links to files that are called after their hashes."""
    store, folder = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    store.mkdir()
    folder.mkdir(parents=True)
    for number, file in enumerate(sorted(compiled(name).folder.iterdir())):
        shutil.copy(file, store / f"blob{number}")
        (folder / file.name).symlink_to(Path("../../blobs") / f"blob{number}")
    assert seqspec.verify(folder).passed
    given = inputs(name, np.random.default_rng(0), 2, 3, 4)
    got, want = seqspec.Session(folder).run(given), compiled(name).session.run(given)
    for output in want:
        np.testing.assert_array_equal(got[output], want[output])
