"""What commands write, what they leave alone, and what they say of what they are given."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_targets import EXAMPLES, Compiled

import seqspec
from seqspec import api
from seqspec.cli.main import run
from seqspec.runtime.compare import Verification
from seqspec.runtime.options import Options

Get = Callable[[str], Compiled]
SPEC = (EXAMPLES / "gru-forecast.yaml").read_text()


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("SEQSPEC_TRACEBACK", raising=False)
    monkeypatch.chdir(tmp_path)


# ---- files that are there already ------------------------------------------------------------------------------------


def test_source_replaces_source_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.yaml").write_text(SPEC)
    Path("keep.py").write_text('"""Three years of work."""\n')
    Path("empty.py").touch()
    Path("link.py").symlink_to("keep.py")
    for name in ("m.yaml", "keep.py", "empty.py", "link.py", "/dev/null"):
        before = Path(name).read_text()
        assert run(["compile", "m.yaml", "--to", "python", "-o", name]) == 1
        assert "SEQ403" in capsys.readouterr().err
        assert Path(name).read_text() == before
    for _ in range(2):
        assert run(["compile", "m.yaml", "--to", "python", "-o", "model.py"]) == 0
    Path("model.py").write_text(Path("model.py").read_text() + "# mine\n")
    assert run(["compile", "m.yaml", "--to", "python", "-o", "model.py"]) == 0
    assert "# mine" not in Path("model.py").read_text()
    assert {p.name for p in tmp_path.iterdir()} == {"m.yaml", "keep.py", "empty.py", "link.py", "model.py"}


def test_results_replace_results_only(compiled: Get, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(compiled("gpt2").folder)
    np.savez("x.npz", input_ids=np.array([[1, 2]]))
    Path("m4.yaml").write_text(SPEC)
    for name in ("m4.yaml", "x.npz", f"{folder}/model.onnx", f"{folder}/seqspec.json"):
        before = Path(name).read_bytes()
        assert run(["run", folder, "--input", "x.npz", "-o", name]) == 1
        assert "SEQ403" in capsys.readouterr().err
        assert Path(name).read_bytes() == before
    for _ in range(2):
        assert run(["run", folder, "--input", "x.npz", "-o", "y.npz"]) == 0
    before = Path("y.npz").read_bytes()
    assert run(["run", folder, "--input", "x.npz", "--state", "y.npz", "-o", "y.npz"]) == 1
    assert "is what this call reads" in capsys.readouterr().err
    assert Path("y.npz").read_bytes() == before


@pytest.mark.parametrize("kind", ["onnx", "torch", "python"])
def test_places_where_nothing_can_be_written(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.yaml").write_text(SPEC)
    Path("file").touch()
    for place in ("/proc/x/y", "file/y"):
        assert run(["compile", "m.yaml", "--to", kind, "-o", place]) == 1
        said = capsys.readouterr().err
        assert "SEQ404" in said
        assert "cannot be written" in said


# ---- what a folder takes ---------------------------------------------------------------------------------------------


def test_run_alone_lists_inputs_outputs_and_state(compiled: Get, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(compiled("gpt2").folder)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    session = compiled("gpt2").session
    named = {words[0]: words[1:] for words in lines}
    assert named["input_ids"][:3] == ["int64", "[batch_size,", "sequence_length]"]
    assert "optional" in named["attention_mask"]
    assert named["logits"][:2] == ["float32", "[batch_size,"]
    assert {p.name for p in session.inputs} | {p.name for p in session.outputs} | set(session.state_names) <= set(named)
    assert run(["run", str(compiled("minilm").folder)]) == 0
    assert "state" not in capsys.readouterr().out


def test_an_array_without_a_name(compiled: Get, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.array([[1, 2]]))
    assert run(["run", str(compiled("gpt2").folder), "--input", "x.npy", "-o", "y.npz"]) == 2
    said = capsys.readouterr().err
    assert "give an .npz with arrays by name: input_ids int64 [batch_size, sequence_length], attention_mask" in said


def test_half_of_run_is_wrong_usage(compiled: Get, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(compiled("gpt2").folder)
    for wrong in (["-o", "y.npz"], ["--input", "x.npz"], ["--state", "y.npz"]):
        assert run(["run", folder, *wrong]) == 2
        assert "is missing" in capsys.readouterr().err


# ---- what is no compiled folder --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["run"], ["verify"], ["generate", "--ids", "1", "--max-new-tokens", "1"]])
def test_a_spec_or_a_file_for_a_folder(command: list[str], compiled: Get, capsys: pytest.CaptureFixture[str]) -> None:
    Path("model.yaml").write_text(SPEC)
    Path("notes.txt").write_text("notes")
    shutil.copytree(compiled("gpt2").folder, "out")
    for given, advice in (
        ("model.yaml", "compile it first: seqspec compile model.yaml"),
        ("out/model.onnx", "give its folder, out"),
        ("notes.txt", "give the folder that `seqspec compile` wrote"),
    ):
        assert run([*command, given]) == 1
        said = capsys.readouterr().err
        assert "SEQ516" in said
        assert advice in said
        assert "damaged" not in said


def test_a_torch_folder_for_onnxruntime(compiled: Get, capsys: pytest.CaptureFixture[str]) -> None:
    api.write_torch(compiled("gpt2").model, "torch")
    for command in (["run"], ["generate", "--ids", "1", "--max-new-tokens", "1"]):
        assert run([*command, "torch"]) == 1
        said = capsys.readouterr().err
        assert "torch is a PyTorch folder" in said
        assert "only `verify` takes both" in said


def test_a_fault_of_a_whole_file_has_no_line(compiled: Get, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(compiled("gpt2").folder, "out")
    Path("out/model.onnx").write_bytes(b"")
    assert run(["verify", "out"]) == 1
    said = capsys.readouterr().err
    assert "--> out/model.onnx\n" in said


def test_short_names_of_providers(compiled: Get, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", str(compiled("gpt2").folder), "--ids", "1", "--max-new-tokens", "1", "--provider"]
    assert run([*arguments, "cpu"]) == 0
    assert run([*arguments, "cuda"]) == 1
    assert "CUDAExecutionProvider" in capsys.readouterr().err


# ---- what is said of a success ---------------------------------------------------------------------------------------


def test_python_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.yaml").write_text(SPEC)
    assert run(["compile", "m.yaml", "--to", "python", "-o", "-"]) == 0
    assert capsys.readouterr().out == api.to_source("m.yaml")
    assert run(["compile", "m.yaml", "--to", "onnx", "-o", "-"]) == 2
    assert "writes a folder, which cannot be printed" in capsys.readouterr().err
    assert not Path("-").exists()


def test_a_success_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.yaml").write_text(SPEC)
    small = ["m.yaml", "--set", "encoder.layers[0].hidden_size=4", "--to"]
    assert run(["compile", *small, "onnx", "-o", "out"]) == 0
    said = capsys.readouterr()
    listed, _, agrees = said.out.partition("; ")
    assert listed == "wrote out: model.onnx, model.onnx.data, seqspec.json, spec.yaml"
    assert re.fullmatch(r"agrees with PyTorch in float64 to \d+(e-\d+)?\n", agrees)
    assert said.err == ""
    assert run(["compile", *small, "torch", "-o", "torch", "--no-verify"]) == 0
    assert capsys.readouterr().out.endswith("spec.yaml; not verified\n")
    assert run(["compile", *small, "python", "-o", "m.py"]) == 0
    assert capsys.readouterr().out == "wrote m.py\n"
    assert run(["compile", *small, "onnx", "-o", "half", "--dtype", "float16"]) == 0
    said = capsys.readouterr().out
    cost = json.loads(Path("half/seqspec.json").read_text())["error"]["logits"]
    assert said.endswith(f"; fewer bits change logits by {cost:.0e} of its largest value\n".replace("e-0", "e-"))
    np.savez("x.npz", features=np.zeros((1, 2, 8), np.float32))
    assert run(["run", "out", "--input", "x.npz", "-o", "y.npz"]) == 0
    assert capsys.readouterr().out == "wrote y.npz: logits [1, 1], and the state in 2 arrays\n"


def test_weights_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.yaml").write_text(SPEC)
    assert run(["compile", "m.yaml", "--to", "onnx", "-o", "out", "--weights", "m.yaml"]) == 1
    assert "m.yaml is not a safetensors file" in capsys.readouterr().err
    assert run(["import", "bert-base-uncased", "-o", "out"]) == 1
    assert "nothing is downloaded" in capsys.readouterr().err
    assert not Path("out").exists()


def test_generation_explains_its_options() -> None:
    written = inspect.getdoc(seqspec.Session.generate) or ""
    assert all(re.search(rf"^{name} ", written, re.MULTILINE) for name in ("ids", *Options.__annotations__))


def test_a_fresh_module_trains() -> None:
    assert seqspec.to_torch(EXAMPLES / "lstm-tagger.yaml").training


@pytest.mark.parametrize("seed", range(4))
def test_norms_of_two_channels_are_not_refused_by_luck(seed: int, tmp_path: Path) -> None:
    """LayerNorm over two channels is a sign, whose roundings weights this small amplify."""
    stack = {"input": {"kind": "tokens", "vocab_size": 7}, "d_model": 2}
    block = [{"kind": "attention", "heads": 1}, {"kind": "ffn", "d_ff": 3}]
    spec = {"seqspec": 1, "name": "x", "decoder": {**stack, "layers": [{"block": block}]}, "head": "lm"}
    seen: list[Verification] = []
    api.to_onnx(spec, tmp_path / "out", seed=seed, told=seen.append)
    assert seen[0].passed
    assert all(2e-6 <= limit < 1e-3 for limit in seen[0].limits.values())
