"""The commands that run things, from the command line to files and numbers."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import small_targets
from small_targets import EXAMPLES, SMALL, Compiled, inputs

import seqspec
from seqspec.cli.main import run
from seqspec.runtime import environment

Get = Callable[[str], Compiled]


def small(name: str) -> list[str]:
    """The example and its overrides, as arguments."""
    return [str(EXAMPLES / f"{name}.yaml"), *(word for change in SMALL[name] for word in ("--set", change))]


def test_compile_run_and_go_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(["compile", *small("transformer-base"), "--to", "onnx", "-o", str(out), "--seed", "3"]) == 0
    given = inputs("transformer-base", np.random.default_rng(0), 2, 6, 5)
    first = {"input_ids": given["input_ids"], "decoder_input_ids": given["decoder_input_ids"][:, :4]}
    np.savez(tmp_path / "x.npz", **first)
    np.savez(tmp_path / "rest.npz", decoder_input_ids=given["decoder_input_ids"][:, 4:])
    np.savez(tmp_path / "all.npz", **given)
    x, rest, whole = (str(tmp_path / f"{n}.npz") for n in ("x", "rest", "all"))
    y, z, w = (str(tmp_path / f"{n}.npz") for n in "yzw")
    assert run(["run", str(out), "--input", x, "-o", y]) == 0
    assert run(["run", str(out), "--input", rest, "-o", z, "--state", y]) == 0
    assert run(["run", str(out), "--input", whole, "-o", w]) == 0
    with np.load(y) as one, np.load(z) as two, np.load(w) as both:
        np.testing.assert_allclose(np.concatenate([one["logits"], two["logits"]], 1), both["logits"], atol=1e-5)
        assert set(two.files) == set(both.files)
    model = seqspec.to_torch(small_targets.spec("transformer-base"), seed=3).eval()
    want, _ = small_targets.run_torch(SimpleNamespace(module=model), given)  # type: ignore[arg-type]
    with np.load(w) as both:
        np.testing.assert_allclose(both["logits"], want, atol=1e-5)


def test_run_refuses(compiled: Get, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, output = str(compiled("gpt2").folder), str(tmp_path / "y.npz")
    np.savez(tmp_path / "x.npz", input_ids=np.array([[61]]))
    assert run(["run", folder, "--input", str(tmp_path / "x.npz"), "-o", output]) == 1
    assert "SEQ510" in capsys.readouterr().err
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "text.npz").write_text("text")
    for wrong in ("objects.npy", "text.npz", "none.npz"):
        assert run(["run", folder, "--input", str(tmp_path / wrong), "-o", output]) == 2
        assert wrong in capsys.readouterr().err
    assert not Path(output).exists()


def test_generate(compiled: Get, capsys: pytest.CaptureFixture[str]) -> None:
    model = compiled("gpt2")
    want = model.session.generate([[5, 6, 7], [8]], max_new_tokens=6).tolist()
    arguments = ["generate", str(model.folder), "--ids", "5,6,7", "--ids", "8", "--max-new-tokens", "6"]
    assert run(arguments) == 0
    assert [[int(n) for n in line.split(",")] for line in capsys.readouterr().out.split()] == want
    assert run([*arguments, "--eos-id", str(want[1][2])]) == 0
    ended = capsys.readouterr().out.split()[1].split(",")
    assert ended == [str(n) for n in want[1][: want[1].index(want[1][2]) + 1]]
    drawn = ["--temperature", "1.5", "--top-k", "9", "--top-p", "0.9", "--seed", "4"]
    assert run([*arguments, *drawn]) == 0
    options = {"temperature": 1.5, "top_k": 9, "top_p": 0.9, "seed": 4}
    made = model.session.generate([[5, 6, 7], [8]], max_new_tokens=6, **options).tolist()
    assert [[int(n) for n in line.split(",")] for line in capsys.readouterr().out.split()] == made
    for wrong in (["--ids", "5,x"], ["--ids", "5", "--max-new-tokens", "0"], ["--ids", "5", "--temperature", "-1"]):
        assert run(["generate", str(model.folder), "--max-new-tokens", "3", *wrong]) == 2
    split = compiled("nmt-bahdanau")
    arguments = ["generate", str(split.folder), "--ids", "5,6", "--max-new-tokens", "3"]
    assert run([*arguments, "--decoder-start-id", "2"]) == 0
    assert run(arguments) == 1
    assert "decoder_start_id" in capsys.readouterr().err


def test_verify(compiled: Get, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(compiled("nmt-bahdanau").folder)
    assert run(["verify", folder]) == 0
    shown = capsys.readouterr().out
    assert "logits" in shown
    assert "past_state.0.step.h" in shown
    assert "agrees: against PyTorch in float64" in shown
    from seqspec.runtime import verify

    monkeypatch.setattr(verify, "tolerance", lambda depth, dtype: 1e-12)
    monkeypatch.setattr(verify, "_AMPLIFIED", 0)
    assert run(["verify", folder]) == 1
    assert "differs" in capsys.readouterr().out
    assert run(["verify", str(EXAMPLES)]) == 1
    assert "SEQ507" in capsys.readouterr().err


def test_compile_to_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", *small("gpt2"), "--to", "python", "-o", str(tmp_path / "gpt2.py")]) == 0
    assert run(["compile", *small("gpt2"), "--to", "torch", "-o", str(tmp_path / "torch")]) == 0
    assert (tmp_path / "torch" / "model.py").read_text() == (tmp_path / "gpt2.py").read_text()
    assert run(["verify", str(tmp_path / "torch")]) == 0
    weights = ["--weights", str(tmp_path / "torch" / "model.safetensors")]
    onnx = ["compile", *small("gpt2"), "--to", "onnx", "-o"]
    assert run([*onnx, str(tmp_path / "a"), *weights, "--target", "portable", "--dtype", "float16", "--no-verify"]) == 0
    manifest = json.loads((tmp_path / "a" / "seqspec.json").read_text())
    assert (manifest["target"], manifest["dtype"]) == ("portable", "float16")
    assert run([*onnx, str(tmp_path / "b"), *weights]) == 0
    assert run([*onnx, str(tmp_path / "c"), "--seed", "0"]) == 0
    assert (tmp_path / "b" / "model.onnx.data").read_bytes() == (tmp_path / "c" / "model.onnx.data").read_bytes()
    capsys.readouterr()


@pytest.mark.parametrize(
    "options",
    [
        ["--to", "python", "--seed", "1"],
        ["--to", "python", "--no-verify"],
        ["--to", "python", "--weights", "w"],
        ["--to", "torch", "--target", "cpu"],
        ["--to", "torch", "--dtype", "float16"],
        ["--to", "onnx", "--weights", "w", "--seed", "1"],
        ["--to", "onnx", "--target", "tpu"],
        ["--to", "pdf"],
        [],
    ],
)
def test_options_that_would_do_nothing(options: list[str], tmp_path: Path) -> None:
    assert run(["compile", *small("gpt2"), "-o", str(tmp_path / "out"), *options]) == 2
    assert not list(tmp_path.iterdir())


def test_a_wrong_spec_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--set", "decoder.layers[0].block[0].heads=5", "--to", "onnx", "-o", str(tmp_path / "out")]
    assert run(["compile", *small("gpt2"), *wrong]) == 1
    assert "SEQ201" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_import_and_compile(minilm_folder: Path, tmp_path: Path) -> None:
    assert run(["import", str(minilm_folder), "-o", str(tmp_path / "minilm")]) == 0
    assert {f.name for f in (tmp_path / "minilm").iterdir()} == {"spec.yaml", "model.safetensors"}


# doctor


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    shown = capsys.readouterr().out
    for word in ("python", "seqspec-compiler", "torch", "onnxruntime", "CPUExecutionProvider", "works", "complete"):
        assert word in shown


def findings(subject: str) -> list[environment.Finding]:
    return [f for f in environment.examine() if f.subject.startswith(subject)]


def pretend(monkeypatch: pytest.MonkeyPatch, installed: dict[str, str]) -> None:
    """An environment with these distributions."""
    made = [SimpleNamespace(metadata={"Name": name}, version=number) for name, number in installed.items()]

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(environment.metadata, "distributions", lambda: iter(made))
    monkeypatch.setattr(environment.metadata, "version", version)


def test_doctor_finds_two_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {"onnxruntime": "1.24.0", "onnxruntime_gpu": "1.24.1", "onnxruntime-genai": "1"})
    found = [f for f in findings("onnxruntime") if not f.fine]
    assert len(found) == 1
    assert "onnxruntime 1.24.0 and onnxruntime-gpu 1.24.1" in found[0].text
    assert found[0].hint.startswith("pip uninstall onnxruntime onnxruntime-gpu")


def test_doctor_finds_the_wreck_of_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime").mkdir()
    spec = ModuleSpec("onnxruntime", None, is_package=True)
    monkeypatch.setattr(environment, "find_spec", lambda name: spec)
    found = [f for f in findings("onnxruntime") if not f.fine]
    assert len(found) == 1
    assert "empty folder" in found[0].text
    monkeypatch.setattr(environment, "find_spec", lambda name: None)
    assert "files are gone" in findings("onnxruntime")[0].text


def test_doctor_finds_the_other_seqspec(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pretend(monkeypatch, {"seqspec": "0.3.1", "seqspec-compiler": "0.1.0"})
    assert run(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "0.3.1" in shown
    assert "sequencing" in shown


def test_doctor_names_missing_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {"seqspec-compiler": "0.1.0", "numpy": "2", "safetensors": "1"})
    torch, onnx, text = findings("extra")
    assert torch.text == "torch missing"
    assert torch.hint == "pip install 'seqspec-compiler[torch]'"
    assert onnx.text == "onnx, onnx-ir, onnxruntime missing"
    assert text.text == "tokenizers missing"
    assert torch.fine  # an extra is nothing that one must have


def test_a_provider_that_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    real = onnxruntime.InferenceSession
    fake = ModuleType("onnxruntime")
    fake.__version__ = "1"  # type: ignore[attr-defined]
    fake.set_default_logger_severity = lambda level: None  # type: ignore[attr-defined]
    fake.SessionOptions = onnxruntime.SessionOptions  # type: ignore[attr-defined]
    fake.get_available_providers = lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]  # type: ignore[attr-defined]
    fake.InferenceSession = lambda b, o, **_: real(b, o, providers=["CPUExecutionProvider"])  # type: ignore[attr-defined]
    monkeypatch.setattr(environment.importlib, "import_module", lambda name: fake)
    found = {f.subject: f for f in environment._onnxruntime()}
    assert "does not work here" in found["CUDAExecutionProvider"].text
    assert found["CUDAExecutionProvider"].fine
    assert found["CPUExecutionProvider"].text == "works"


def test_extras_are_those_of_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    declared = tomllib.loads(text)["project"]["optional-dependencies"]
    for extra, names in environment.EXTRAS.items():
        found = {line.split(">=")[0].strip().replace("onnxruntime-gpu", "onnxruntime") for line in declared[extra]}
        assert found == set(names)


# without the extras


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "out", "--input", "x.npz", "-o", "y.npz"],
        ["generate", "out", "--ids", "1", "--max-new-tokens", "1"],
    ],
)
def test_a_missing_package_is_an_extra(arguments: list[str], tmp_path: Path) -> None:
    script = f"import sys; sys.modules['numpy'] = None; from seqspec.cli.main import run; sys.exit(run({arguments}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "SEQ401" in done.stderr
    assert "seqspec-compiler[onnx]" in done.stderr
