"""Folders that other programs load: onnxruntime-genai and Transformers.js generate the ids that we do."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from small_targets import EXAMPLES, fault, spec

import seqspec

PROGRAMS = Path(__file__).parent / "programs"
SHRINK = runpy.run_path(str(EXAMPLES.parent / "tests" / "models" / "shrink.py"))["shrink"]
COUNT = 9
# rows of one length; the last ends with 0, which is padding nowhere but in `padded`
PROMPTS = [[5, 6, 7, 8, 9], [11, 3, 4, 2, 30], [9, 8, 7, 6, 0]]
DRAWN = {"seed": 3}

LAYER = {"kind": "attention", "heads": 4, "head_dim": 8}
UNEVEN = {
    "seqspec": 1,
    "name": "uneven",
    "decoder": {
        "input": {"kind": "tokens", "vocab_size": 61},
        "d_model": 20,
        "position": {"kind": "rope"},
        "norm": "rmsnorm",
        "layers": [
            {"block": [{"kind": "ffn", "d_ff": 24}]},
            {"block": [{**LAYER, "kv_heads": 1}, {"kind": "ffn", "d_ff": 24}]},
            {"block": [{**LAYER, "heads": 2, "head_dim": 16}]},
        ],
    },
    "head": {"kind": "lm"},
}
PADDED = {**UNEVEN, "decoder": {**UNEVEN["decoder"], "input": {"kind": "tokens", "vocab_size": 61, "pad_id": 0}}}
TINY = seqspec.load(EXAMPLES / "tiny-llama.yaml")
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    **{name: (spec(name), {}) for name in ("gpt2", "llama-3.2-1b", "hybrid-window")},
    **{name: (SHRINK(seqspec.load(EXAMPLES / f"{name}.yaml")), {}) for name in ("alibi-decoder", "gpt-j-6b")},
    "kernels": (TINY, {}),  # the only one here whose buffers are shared
    "kernels-last": (TINY, {"logits": "last"}),
    "kernels-half": (TINY, {"dtype": "float16"}),
    "kernels-int4": (TINY, {"quantize": "int4"}),
    "portable": (TINY, {"target": "portable"}),
    "windows": (spec("hybrid-window"), {"target": "portable"}),
    "uneven": (UNEVEN, {}),
    "padded": (PADDED, {}),
}
REFUSED = {
    "nmt-bahdanau": ("it has an encoder besides the decoder", "input: {kind: tokens, vocab_size: 8000, d_model: 256"),
    "elman-language-model": ("it carries `past_state.0.rnn.h`", "{kind: rnn, hidden_size: 128"),
    "linear-attention": ("it carries `past_state.0.linear_attention.kv_sum`", "repeat: 8"),
    "bert-base": ("it takes `token_type_ids`", "input: {kind: tokens, vocab_size: 30522"),
    "lstm-sentiment": ("it gives no `logits` of the next id", "head"),
    "gru-forecast": ("it reads `features` and no ids", "input: {kind: features"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every model for both programs at once."""
    root = tmp_path_factory.mktemp("programs")
    return {name: _compiled(root / name, name, genai=True, transformers_js=True) for name in MODELS}


def _compiled(folder: Path, name: str, **more: Any) -> Path:
    model, options = MODELS[name]
    return seqspec.to_onnx(model, folder, verify=False, **DRAWN, **options, **more)


def ours(folder: Path, prompts: list[list[int]], mask: Any = None) -> list[list[int]]:
    return seqspec.Session(folder).generate(np.array(prompts), max_new_tokens=COUNT, attention_mask=mask).tolist()


def until(rows: list[list[int]], end: int) -> list[list[int]]:
    """Up to the first `end`, where the other program stops."""
    return [row[: row.index(end)] if end in row else row for row in rows]


# onnxruntime-genai


def genai_python() -> str:
    """A Python that has it: this one, or another, since it brings an onnxruntime of its own."""
    if find_spec("onnxruntime_genai"):
        return sys.executable
    python = os.environ.get("SEQSPEC_GENAI_PYTHON", "")
    if not shutil.which(python):
        pytest.skip("onnxruntime-genai is not here: SEQSPEC_GENAI_PYTHON names a Python that has it")
    return python


def test_genai_generates_our_ids(folders: dict[str, Path]) -> None:
    asked, wanted = [], []
    for name, folder in folders.items():
        for prompts in ([PROMPTS[0]], PROMPTS[: 2 if name == "padded" else 3]):
            asked.append({"folder": str(folder), "prompts": prompts, "count": COUNT})
            wanted.append(ours(folder, prompts))
    # padding behind a row, which the first id of all is read before
    behind = {"folder": str(folders["padded"]), "prompts": [PROMPTS[0], [9, 8, 7, 0, 0]], "count": COUNT}
    asked.append(behind)
    wanted.append(ours(folders["padded"], behind["prompts"], [[1] * 5, [1, 1, 1, 0, 0]]))
    done = _run([genai_python(), str(PROGRAMS / "genai_generate.py")], asked)
    for request, made, right in zip(asked, done, wanted, strict=True):
        assert until(made, 0) == until(right, 0), request
        assert any(until(right, 0)), request


def test_what_genai_is_told(folders: dict[str, Path], tmp_path: Path) -> None:
    told = json.loads((folders["gpt2"] / "genai_config.json").read_text())
    assert told["model"]["context_length"] == 19 == told["search"]["max_length"]
    assert told["model"]["decoder"]["filename"] == "onnx/model.onnx"
    shared = {name: json.loads((f / "genai_config.json").read_text())["search"] for name, f in folders.items()}
    assert {name for name, search in shared.items() if search["past_present_share_buffer"]} == {
        "kernels", "kernels-last", "kernels-half", "kernels-int4",
    }  # fmt: skip
    assert json.loads((folders["padded"] / "genai_config.json").read_text())["model"]["pad_token_id"] == 0
    alone = _compiled(tmp_path / "alone", "gpt2", genai=True, eos_id=7)
    assert {f.name for f in alone.iterdir()} == {
        "genai_config.json", "model.onnx", "model.onnx.data", "seqspec.json", "spec.yaml",
    }  # fmt: skip
    told = json.loads((alone / "genai_config.json").read_text())
    assert (told["model"]["eos_token_id"], told["model"]["decoder"]["filename"]) == ([7], "model.onnx")
    with pytest.raises(seqspec.CompileError, match=r"`eos_id` takes an id below \d+"):
        _compiled(tmp_path / "beyond", "gpt2", genai=True, eos_id=10**6)
    assert not (tmp_path / "beyond").exists()
    names = {
        i.name: i for i in ort.InferenceSession(alone / "model.onnx", providers=["CPUExecutionProvider"]).get_inputs()
    }
    assert names["attention_mask"].type == "tensor(int64)"
    inputs = told["model"]["decoder"]["inputs"]
    assert inputs["past_key_names"] % 0 in names
    assert inputs["past_value_names"] % (told["model"]["decoder"]["num_hidden_layers"] - 1) in names


def test_values_of_another_width_are_refused(tmp_path: Path) -> None:
    layer = {**UNEVEN["decoder"], "layers": [{"block": [{**LAYER, "value_dim": 3}]}]}
    with fault("SEQ416", "its values are 3 wide, and its keys 8"):
        seqspec.to_onnx({**UNEVEN, "decoder": layer}, tmp_path / "out", genai=True)
    assert seqspec.to_onnx({**UNEVEN, "decoder": layer}, tmp_path / "out", transformers_js=True, verify=False)


# Transformers.js


def node_modules() -> Path:
    folder = Path(os.environ.get("SEQSPEC_NODE_MODULES", ""))
    if not shutil.which("node") or not (folder / "@huggingface" / "transformers").is_dir():
        pytest.skip("Transformers.js is not here: SEQSPEC_NODE_MODULES names a node_modules that has it, beside Node")
    return folder


def test_transformers_js_generates_our_ids(folders: dict[str, Path]) -> None:
    masks = [[1] * 5, [0, 0, 1, 1, 1], [0, 1, 1, 1, 1]]
    asked = [{"folder": str(f), "prompts": PROMPTS, "masks": masks, "count": COUNT} for f in folders.values()]
    done = _run(["node", str(PROGRAMS / "transformers_js_generate.mjs"), str(node_modules())], asked)
    for request, made in zip(asked, done, strict=True):
        assert made == ours(Path(request["folder"]), PROMPTS, request["masks"]), request


def test_transformers_js_carries_what_a_window_shows(tmp_path: Path) -> None:
    """Alone, since onnxruntime-genai needs the whole past: the window is of 4 tokens, and the first layers have one."""
    folder = _compiled(tmp_path / "out", "windows", transformers_js=True)
    assert "past_window_4_length" in (folder / "seqspec.json").read_text()
    masks = [[1] * 5, [0, 0, 1, 1, 1], [0, 1, 1, 1, 1]]
    asked = [{"folder": str(folder), "prompts": PROMPTS, "masks": masks, "count": COUNT}]
    (made,) = _run(["node", str(PROGRAMS / "transformers_js_generate.mjs"), str(node_modules())], asked)
    assert made == ours(folder, PROMPTS, masks)


def test_what_transformers_js_reads(folders: dict[str, Path]) -> None:
    """Its own rules: the names of files by type, of weights beside them, of sizes and caches."""
    kinds = {"kernels-half": "fp16", "kernels-int4": "q4"}
    for name, folder in folders.items():
        config = json.loads((folder / "config.json").read_text())
        kind = kinds.get(name, "fp32")
        assert config["transformers.js_config"] == {"dtype": kind, "use_external_data_format": True}
        file = folder / "onnx" / ("model.onnx" if kind == "fp32" else f"model_{kind}.onnx")
        stored = onnx.load(file, load_external_data=False)
        places = {e.value for t in stored.graph.initializer for e in t.external_data if e.key == "location"}
        assert places == {f"{file.name}_data"}
        assert (folder / "onnx" / f"{file.name}_data").is_file()
        read = {f"past_key_values.{n}.{part}" for n in range(config["num_hidden_layers"]) for part in ("key", "value")}
        for value in stored.graph.input:
            assert value.name in {"input_ids", "attention_mask", *read}
            assert value.type.tensor_type.shape.dim[0].dim_param == "batch_size"
    ends = json.loads((folders["padded"] / "generation_config.json").read_text())
    assert ends == {"pad_token_id": 0}
    assert json.loads((folders["gpt2"] / "config.json").read_text())["max_position_embeddings"] == 19


# both


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("program", ["genai", "transformers_js"])
def test_what_they_cannot_drive_is_refused_at_its_place(name: str, program: str, tmp_path: Path) -> None:
    file = EXAMPLES / f"{name}.yaml"
    text, line = REFUSED[name]
    with pytest.raises(seqspec.CompileError) as refused:
        seqspec.to_onnx(file, tmp_path / "out", **{program: True})
    (found,) = refused.value.diagnostics
    assert found.code == "SEQ416"
    assert text in found.message
    assert found.file == str(file)
    assert line in file.read_text().splitlines()[found.line - 1]
    assert not (tmp_path / "out").exists()


def test_settings_of_programs_may_be_changed(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["gpt2"], tmp_path / "out")
    for name in ("genai_config.json", "config.json", "generation_config.json"):
        (folder / name).write_text((folder / name).read_text() + "\n")
    assert ours(folder, PROMPTS) == ours(folders["gpt2"], PROMPTS)
    _compiled(folder, "gpt2")  # and replaced


def test_a_folder_of_folders_is_ours(folders: dict[str, Path], tmp_path: Path) -> None:
    """It is checked whole, verified, and replaced; with a foreign file in it it is not."""
    folder = shutil.copytree(folders["uneven"], tmp_path / "out")
    assert seqspec.verify(folder).passed
    (folder / "onnx" / "mine.txt").write_text("mine")
    with fault("SEQ403", "onnx/mine.txt"):
        _compiled(folder, "uneven")
    (folder / "onnx" / "mine.txt").unlink()
    _compiled(folder, "uneven")
    assert not (folder / "onnx").exists()
    broken = shutil.copytree(folders["uneven"], tmp_path / "broken")
    data = broken / "onnx" / "model.onnx_data"
    data.write_bytes(data.read_bytes()[:-1] + b"!")
    with fault("SEQ507", "SHA-256 differs"):
        seqspec.Session(broken)


@pytest.mark.parametrize("name", ["../model.onnx", "/etc/passwd", "a/../b", "", "a//b"])
def test_a_manifest_names_files_below_its_folder(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["gpt2"], tmp_path / "out")
    manifest = json.loads((folder / "seqspec.json").read_text())
    manifest["files"] = {name: {"size": 1, "sha256": ""}}
    (folder / "seqspec.json").write_text(json.dumps(manifest))
    with fault("SEQ507", "is no file of this folder"):
        seqspec.Session(folder)


def _run(command: list[str], asked: Any) -> list[Any]:
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return list(json.loads(done.stdout.splitlines()[-1]))
