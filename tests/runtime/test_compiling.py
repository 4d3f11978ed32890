"""Compiling: complete and verified or not at all, the same bytes every time, and refusals before anything costs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from small_targets import EXAMPLES, SMALL, fault, random_weights, spec

import seqspec
from seqspec import api
from seqspec.backends.weights import Drawn

# about two seconds of writing and checking: 17 million parameters
SLOW = ["decoder.input.vocab_size=30000", "decoder.d_model=516", "decoder.layers[0].repeat=1"]


def hashes(folder: Path) -> dict[str, str]:
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir()}


@pytest.mark.parametrize("name", ["lstm-sentiment", "nmt-bahdanau", "gpt2"])
def test_the_same_bytes_every_time(name: str, tmp_path: Path) -> None:
    model = spec(name)
    first = hashes(seqspec.to_onnx(model, tmp_path / "a", seed=5))
    assert hashes(seqspec.to_onnx(model, tmp_path / "b" / "c", seed=5)) == first
    assert hashes(seqspec.to_onnx(model, tmp_path / "a", seed=5)) == first
    # the weights themselves instead of their seed, and the resolved spec instead of the written one
    drawn = dict(Drawn(seqspec.build(model).root.params, 5))
    assert hashes(seqspec.to_onnx(tmp_path / "a" / "spec.yaml", tmp_path / "d", weights=drawn)) == first
    tensors = {k: torch.from_numpy(v) for k, v in drawn.items()}
    assert hashes(seqspec.to_onnx(model, tmp_path / "e", weights=tensors)) == first
    assert hashes(seqspec.to_onnx(model, tmp_path / "f", seed=6))["model.onnx.data"] != first["model.onnx.data"]


@pytest.mark.parametrize("name", SMALL)
def test_nothing_of_this_machine_is_inside(name: str, tmp_path: Path) -> None:
    folder = seqspec.to_onnx(spec(name), tmp_path / "somewhere", verify=False)
    for file in folder.iterdir():
        content = file.read_bytes()
        for secret in (str(tmp_path), str(Path.home()), os.uname().nodename, str(EXAMPLES), "Traceback"):
            assert len(secret) < 4 or secret.encode() not in content, (file.name, secret)


def test_what_a_folder_holds(tmp_path: Path) -> None:
    assert {f.name for f in seqspec.to_onnx(spec("gpt2"), tmp_path / "one").iterdir()} == {
        "model.onnx",
        "model.onnx.data",
        "spec.yaml",
        "seqspec.json",
    }
    two = seqspec.to_onnx(spec("nmt-bahdanau"), tmp_path / "two", target="portable")
    assert {f.name for f in two.iterdir()} == {
        "encoder.onnx",
        "decoder.onnx",
        "model.onnx.data",
        "spec.yaml",
        "seqspec.json",
    }
    manifest = json.loads((two / "seqspec.json").read_text())
    assert manifest["graphs"] == {"encoder": "encoder.onnx", "decoder": "decoder.onnx"}
    assert manifest["inputs"]["input_ids"] == {"ids": 61, "pad_id": 0, "mask": "attention_mask"}
    assert manifest["inputs"]["decoder_input_ids"]["first_is_real"] is True


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_of_a_file(dtype: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file as save_tensors

    model = spec("llama-3.2-1b")
    weights = random_weights(seqspec.build(model))
    tensors = {k: torch.from_numpy(v).to(getattr(torch, dtype)) for k, v in weights.items()}
    save_tensors(tensors, tmp_path / "w.safetensors")
    exact = {k: v.float().numpy() for k, v in tensors.items()}
    of_file = seqspec.to_onnx(model, tmp_path / "a", weights=tmp_path / "w.safetensors")
    assert hashes(of_file) == hashes(seqspec.to_onnx(model, tmp_path / "b", weights=exact))
    module = seqspec.to_torch(model, weights=str(tmp_path / "w.safetensors"))
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), exact[name])


def test_weights_that_do_not_fit_are_one_error(tmp_path: Path) -> None:
    model = spec("gpt2")
    weights = random_weights(seqspec.build(model))
    wrong = dict(weights)
    del wrong["decoder.final_norm.bias"]
    wrong["decoder.embed_tokens.weight"] = wrong["decoder.embed_tokens.weight"][:-1]
    wrong["decoder.layers.7.x"] = np.zeros(3, np.float32)
    save_file(wrong, tmp_path / "w.safetensors")
    words = ("decoder.final_norm.bias", "decoder.layers.7.x", "decoder.embed_tokens.weight", "[60, 18]", "[61, 18]")
    for given in (wrong, tmp_path / "w.safetensors"):
        with fault("SEQ407", *words):
            seqspec.to_onnx(model, tmp_path / "out", weights=given)
        with fault("SEQ407", *words):
            seqspec.to_torch(model, weights=given)
        with fault("SEQ407", *words):
            api.write_torch(model, tmp_path / "out", weights=given)
    with fault("SEQ407"):
        seqspec.to_onnx(model, tmp_path / "out", weights={})
    (tmp_path / "w.safetensors").write_bytes(b"no such thing")
    with fault("SEQ409"):
        seqspec.to_onnx(model, tmp_path / "out", weights=tmp_path / "w.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_state_dict_names_are_the_parameters() -> None:
    for name in SMALL:
        model = spec(name)
        assert list(seqspec.to_torch(model).state_dict()) != []
        assert set(seqspec.to_torch(model).state_dict()) == {p.name for p in seqspec.build(model).root.params}


def test_a_torch_folder_runs_without_seqspec(tmp_path: Path) -> None:
    model = spec("llama-3.2-1b")
    folder = api.write_torch(model, tmp_path / "out", seed=3)
    assert {f.name for f in folder.iterdir()} == {"model.py", "model.safetensors", "spec.yaml", "seqspec.json"}
    assert len({f.stat().st_mode for f in folder.iterdir()}) == 1  # who may read one may read all
    weights = load_file(folder / "model.safetensors")
    np.testing.assert_equal(weights, dict(Drawn(seqspec.build(model).root.params, 3)))
    kind = json.loads((folder / "seqspec.json").read_text())["model"]
    script = f"""
import sys
sys.modules["seqspec"] = None
import torch
from safetensors.torch import load_file
from model import {kind}
net = {kind}()
net.load_state_dict(load_file("model.safetensors"))
print(net.eval()(torch.tensor([[1, 2, 3]])).logits.sum().item())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    want = seqspec.to_torch(model, seed=3).eval()(torch.tensor([[1, 2, 3]])).logits.sum().item()
    assert float(done.stdout) == pytest.approx(want, abs=1e-4)


def test_python_is_the_source(tmp_path: Path) -> None:
    model = spec("gpt2")
    file = api.write_source(model, tmp_path / "deep" / "model.py")
    assert file.read_text() == seqspec.to_source(model)
    with fault("SEQ403"):
        api.write_source(model, tmp_path)
    assert [p.name for p in file.parent.iterdir()] == ["model.py"]


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years")
    for step in (seqspec.to_onnx, api.write_torch):
        with fault("SEQ403", "thesis.txt"):
            step(spec("gpt2"), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_cannot_fit_is_refused_at_once(tmp_path: Path) -> None:
    huge = ["decoder.d_model=524280", "decoder.layers[0].repeat=3", "decoder.layers[0].block[1].d_ff=2097152"]
    model = seqspec.load(EXAMPLES / "gpt2.yaml", huge)
    assert sum(np.prod(p.shape, dtype=float) for p in seqspec.build(model).root.params) > 9e12
    for step in (
        lambda: seqspec.to_onnx(model, tmp_path / "out"),
        lambda: api.write_torch(model, tmp_path / "out"),
        lambda: seqspec.to_torch(model),
    ):
        with fault("SEQ402", "need", "TiB", "free"):
            step()
    assert not list(tmp_path.iterdir())


def test_unknown_choices(tmp_path: Path) -> None:
    with fault("SEQ411", "float64"):
        seqspec.to_onnx(spec("gpt2"), tmp_path / "out", dtype="float64")
    with fault("SEQ417", "target", "tpu", "portable"):
        seqspec.to_onnx(spec("gpt2"), tmp_path / "out", target="tpu")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["torch", "onnx", "onnx_ir", "onnxruntime"])
def test_a_missing_extra_is_named(package: str, tmp_path: Path) -> None:
    """As in an environment without the package."""
    extra = "torch" if package == "torch" else "onnx"
    step = "seqspec.to_torch(s)" if package == "torch" else f"seqspec.to_onnx(s, {str(tmp_path / 'out')!r})"
    script = f"""
import sys
sys.modules[{package!r}] = None
import seqspec
s = seqspec.load({str(EXAMPLES / "gru-forecast.yaml")!r})
try:
    {step}
except seqspec.CompileError as error:
    print(error.code, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("SEQ401"), done.stdout + done.stderr
    assert f"pip install 'seqspec-compiler[{extra}]'" in done.stdout
    assert not (tmp_path / "out").exists()


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A compile that is writing, or checking what it wrote."""
    command = [sys.executable, "-m", "seqspec", "compile", str(EXAMPLES / "gpt2.yaml"), "--to", "onnx"]
    command += ["-o", str(folder)]
    command += [word for change in SLOW for word in ("--set", change)]
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
    run = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, preexec_fn=heeding)
    for _ in range(600):
        if any(re.search(r"\.seqspec-\d+-", p.name) for p in folder.parent.iterdir()):
            return run
        assert run.poll() is None, run.stderr.read() if run.stderr else ""
        time.sleep(0.05)
    raise AssertionError("nothing was begun in half a minute")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_an_interrupted_compile_leaves_what_was_there(number: signal.Signals, code: int, tmp_path: Path) -> None:
    folder = seqspec.to_onnx(spec("gpt2"), tmp_path / "out", seed=1)
    before = hashes(folder)
    run = started(folder)
    run.send_signal(number)
    assert run.wait(60) == code
    assert run.stderr is not None
    assert "Traceback" not in run.stderr.read()
    assert hashes(folder) == before
    left = [p.name for p in tmp_path.iterdir() if p.name != "out"]
    assert bool(left) == (number == signal.SIGKILL)
    seqspec.to_onnx(spec("gpt2"), folder, seed=2)  # takes away what was killed
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert hashes(folder) != before
