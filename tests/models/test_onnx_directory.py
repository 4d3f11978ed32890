"""The output directory: whole or not at all, the same bytes anywhere, one weight in memory at a time."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from small_models import SPECS, Array, Runner, close, feeds, make, random_weights, reference

from seqspec.backends.onnx import export, model, refuse_if_too_large, write_directory
from seqspec.diagnostics import CompileError
from seqspec.graph.ir import Graph


def write(graph: Graph, path: Path, **options: Any) -> None:
    write_directory(graph, path, spec="seqspec: 1\n", inputs={"input_ids": {"pad_id": 0}}, **options)


def content(path: Path) -> dict[str, str]:
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in path.iterdir()}


def test_directory_runs_and_manifest_describes_it(tmp_path: Path) -> None:
    graph, path = make("transformer"), tmp_path / "out"
    weights = random_weights(graph)
    write(graph, path, weights=weights)
    manifest = json.loads((path / "seqspec.json").read_text())
    assert manifest["graphs"] == {"encoder": "encoder.onnx", "decoder": "decoder.onnx"}
    assert manifest["inputs"] == {"input_ids": {"pad_id": 0}}
    assert {"encoder.onnx", "decoder.onnx", "model.onnx.data", "spec.yaml"} == set(manifest["files"])
    for file, facts in manifest["files"].items():
        data = (path / file).read_bytes()
        assert facts == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    runner = Runner(graph, {})
    for role, file in manifest["graphs"].items():
        onnx.checker.check_model(str(path / file), full_check=True)
        runner.sessions[role] = ort.InferenceSession(str(path / file), providers=["CPUExecutionProvider"])
    close(runner(feeds(graph))["logits"], reference(graph, weights, feeds(graph))[0])


def test_what_two_files_share_is_stored_once(tmp_path: Path) -> None:
    graph, path = make("transformer"), tmp_path / "out"
    write(graph, path)
    places: dict[str, set[str]] = {}
    spans = set()
    for role in ("encoder", "decoder"):
        for tensor in onnx.load(path / f"{role}.onnx", load_external_data=False).graph.initializer:
            facts = {e.key: e.value for e in tensor.external_data}
            if facts:
                places.setdefault(tensor.name, set()).add(facts["offset"])
                spans.add((int(facts["offset"]), int(facts["length"])))
    assert all(len(offsets) == 1 for offsets in places.values())
    table = 37 * 16 * 4
    assert [length for _, length in spans].count(table) == 1  # encoder, decoder and head read one table
    ordered = sorted(spans)
    assert all(a + n <= b for (a, n), (b, _) in pairwise(ordered))
    assert all(offset % 64 == 0 for offset, _ in ordered)


def test_same_bytes_in_any_process_and_directory(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from test_onnx_directory import make, write\n"
        "[write(make(n), Path(sys.argv[2]) / n) for n in ('llama', 'bahdanau')]"
    )
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path / seed)]
        subprocess.run(command, check=True, env=environment, cwd=tmp_path / seed)
    for name in ("llama", "bahdanau"):
        assert content(tmp_path / "1" / name) == content(tmp_path / "2" / name)
        assert str(tmp_path).encode() not in b"".join(f.read_bytes() for f in (tmp_path / "1" / name).iterdir())


def test_an_output_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write(make("transformer"), path)
    write(make("gpt"), path)
    assert {f.name for f in path.iterdir()} == {"model.onnx", "model.onnx.data", "spec.yaml", "seqspec.json"}
    assert [f.name for f in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, OSError])
def test_a_failure_leaves_the_old_output(tmp_path: Path, failure: type[BaseException]) -> None:
    path, graph = tmp_path / "out", make("gpt")
    write(graph, path)
    before = content(path)

    class Failing(dict[str, Array]):
        reads = 0

        def __getitem__(self, key: str) -> Array:
            self.reads += 1
            if self.reads > 1.5 * len(self):  # each is read once for its shape, and once to be written
                raise failure
            return super().__getitem__(key)

    weights = Failing(random_weights(graph))
    with pytest.raises(CompileError if failure is OSError else failure):
        write(graph, path, weights=weights)
    assert content(path) == before
    assert [f.name for f in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["out", "out [1]", "aus-gäbe"])
def test_leftovers_of_killed_runs_are_removed(tmp_path: Path, name: str) -> None:
    ended = subprocess.check_output([sys.executable, "-c", "import os; print(os.getpid())"], text=True).strip()
    dead, alive = tmp_path / f".{name}.seqspec-{ended}-ab12", tmp_path / f".{name}.seqspec-{os.getpid()}-cd34"
    dead.mkdir()
    alive.mkdir()
    (dead / "model.onnx").write_text("half")
    write(make("gru"), tmp_path / name)
    assert {f.name for f in tmp_path.iterdir()} == {name, alive.name}


def test_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    graph = make("gru")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    write(graph, tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("file", "full", "link"):
        with pytest.raises(CompileError) as caught:
            write(graph, tmp_path / name)
        assert caught.value.code == "SEQ403"
    (tmp_path / "real" / "notes.txt").write_text("mine")
    with pytest.raises(CompileError, match=r"notes\.txt"):
        write(graph, tmp_path / "real")
    (tmp_path / "empty").mkdir()
    write(graph, tmp_path / "empty")
    with pytest.raises(CompileError) as caught:
        write(graph, tmp_path / "file" / "out")
    assert caught.value.code == "SEQ404"


# weights


def test_weights_are_checked_by_name_and_shape() -> None:
    graph = make("gru")
    weights = random_weights(graph)
    name = next(iter(weights))
    for code, wrong in (
        ("SEQ407", {k: v for k, v in weights.items() if k != name}),
        ("SEQ408", weights | {name: weights[name][:-1]}),
        ("SEQ410", weights | {"more": weights[name]}),
    ):
        with pytest.raises(CompileError) as caught:
            model(graph, wrong)
        assert caught.value.code == code


def test_torch_tensors_are_weights() -> None:
    torch = pytest.importorskip("torch")
    graph = make("gru")
    weights, given = random_weights(graph), feeds(graph)
    tensors = {k: torch.nn.Parameter(torch.from_numpy(v)) for k, v in weights.items()}
    ours, theirs = (Runner(graph, export(graph, w))(given) for w in (weights, tensors))
    assert all((ours[k] == theirs[k]).all() for k in ours)


class Counted(Mapping[str, Array]):
    """Weights made when read, that know how many of them are alive."""

    def __init__(self, shapes: Mapping[str, Any]) -> None:
        self.shapes, self.alive, self.most = shapes, 0, 0

    def __getitem__(self, key: str) -> Array:
        array = np.ones(self.shapes[key], np.float32)
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(array, self.ended)
        return array

    def ended(self) -> None:
        self.alive -= 1

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def test_one_weight_at_a_time_is_in_memory(tmp_path: Path) -> None:
    graph = make("gpt")
    weights = Counted({p.name: p.shape for p in graph.root.params})
    write(graph, tmp_path / "out", weights=weights)
    assert weights.most <= 2  # the one before is let go when the next one arrives
    assert weights.alive == 0


def test_what_cannot_fit_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPECS, "big", SPECS["lstm_lm"].replace("d_model: 12", "d_model: 10000000000000"))
    graph = make("big")
    with pytest.raises(CompileError) as caught:
        refuse_if_too_large(graph, "float32", tmp_path)
    assert caught.value.code == "SEQ402"
    with pytest.raises(CompileError):
        write(graph, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_weights_are_rounded_once(tmp_path: Path, dtype: str) -> None:
    graph = make("gru")
    weights = random_weights(graph)
    write(graph, tmp_path / "out", weights=weights, dtype=dtype)
    proto = onnx.load(tmp_path / "out" / "model.onnx")
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    found = stored["head.weight.transposed"]
    assert found.dtype == np.dtype(getattr(ml_dtypes, dtype, dtype))
    np.testing.assert_array_equal(found, weights["head.weight"].T.astype(found.dtype))


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL there")
def test_a_killed_run_leaves_the_old_output_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write(make("gru"), path)
    before = content(path)
    script = (
        "import os, signal, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from seqspec.backends.onnx import data\n"
        "from test_onnx_directory import make, write\n"
        "data.write_data = lambda models, folder: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write(make('gpt'), Path(sys.argv[2]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(Path(__file__).parent), str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert content(path) == before
    assert len(list(tmp_path.iterdir())) == 2
    write(make("gpt"), path)
    assert [f.name for f in tmp_path.iterdir()] == ["out"]
