"""`seqspec bench`: every sort of folder has its phases and their ops. How long they take is nobody's business here."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from small_targets import EXAMPLES, fault, spec

import seqspec
from seqspec.cli.main import run
from seqspec.runtime.bench import Asked, Bench, bench
from seqspec.runtime.op_times import OpTime, op_times

SHRINK: Callable[[seqspec.Model], seqspec.Model] = runpy.run_path(
    str(EXAMPLES.parent / "tests" / "models" / "shrink.py")
)["shrink"]
# (phase, positions, past) of each, for a length of 6 and 3 steps
WHOLE, STEPS, TWO = [("run", 6, 0)], [("prefill", 6, 0), ("decode", 1, 6)], [("prefill", 6, 0), ("decode", 1, 1)]
SORTS = {
    "lstm-sentiment": ("tokens", WHOLE),
    "vit-base": ("inputs", [("run", 1, 0)]),
    "speech-ctc": ("frames", WHOLE),
    "gpt2": ("tokens", STEPS),
    "llama-3.2-1b": ("tokens", STEPS),
    "elman-language-model": ("tokens", STEPS),
    "gru-forecast": ("frames", STEPS),
    "linear-attention": ("tokens", STEPS),
    "nmt-bahdanau": ("tokens", TWO),
    "transformer-base": ("tokens", TWO),
}


def compiled(name: str, folder: Path) -> Path:
    return seqspec.to_onnx(SHRINK(seqspec.load(EXAMPLES / f"{name}.yaml")), folder, verify=False)


def phases(found: Bench) -> list[tuple[str, int, int]]:
    return [(phase.name, phase.positions, phase.past) for phase in found.phases]


@pytest.mark.parametrize("name", SORTS)
def test_every_sort_of_folder(name: str, tmp_path: Path) -> None:
    folder = compiled(name, tmp_path / "out")
    found = bench(folder, Asked(batch=2, length=6, steps=3, runs=2, threads=1))
    unit, wanted = SORTS[name]
    assert (found.unit, phases(found)) == (unit, wanted)
    for phase in found.phases:
        assert len(phase.seconds) == (6 if phase.name == "decode" else 2)
        assert found.rate(phase) == 2 * phase.positions / phase.median
        assert min(op.seconds for op in phase.ops) >= 0
        assert sum(op.seconds for op in phase.ops) > 0
    begins = {op.op: op.nodes for op in found.phases[0].ops}
    files = [file for file in folder.iterdir() if file.suffix == ".onnx"]
    written = Counter(node.op_type for file in files for node in onnx.load(file, load_external_data=False).graph.node)
    # what no optimisation touches is there as often as it was written, in the encoder and the decoder together
    for op in {"LSTM", "GRU", "Scan", "CumSum"} & written.keys():
        assert begins[op] == written[op]


def test_usual_lengths_fit_a_table_of_positions(tmp_path: Path) -> None:
    folder = seqspec.to_onnx(spec("gpt2"), tmp_path / "out", verify=False)  # a table of 19
    assert phases(bench(folder, Asked(runs=1))) == [("prefill", 10, 0), ("decode", 1, 10)]
    assert phases(bench(folder, Asked(length=19, runs=1))) == [("prefill", 19, 0)]
    assert phases(bench(folder, Asked(steps=4, runs=1))) == [("prefill", 15, 0), ("decode", 1, 15)]
    with fault("SEQ506", "19"):
        bench(folder, Asked(length=20, runs=1))
    with fault("SEQ506", "19"):
        bench(folder, Asked(length=17, steps=3, runs=1))


def test_masks_grow_with_the_past(tmp_path: Path) -> None:
    text = """
        seqspec: 1
        name: packed
        decoder:
          input: {kind: tokens, vocab_size: 9, d_model: 4}
          mask: {all: [causal, documents, {kind: given, name: allowed}]}
          layers: [{block: [{kind: attention, heads: 1}]}]
        head: {kind: lm}"""
    found = bench(seqspec.to_onnx(text, tmp_path / "out", verify=False), Asked(length=6, steps=3, runs=1))
    assert phases(found) == STEPS


def test_half_precision_and_kernels(tmp_path: Path) -> None:
    folder = seqspec.to_onnx(EXAMPLES / "tiny-llama.yaml", tmp_path / "out", dtype="float16", verify=False)
    found = bench(folder, Asked(length=5, steps=2, runs=1))
    assert [{op.op: op.nodes for op in phase.ops}["GroupQueryAttention"] for phase in found.phases] == [4, 4]


def test_an_op_is_without_what_runs_inside_it(tmp_path: Path) -> None:
    """Two runs and one before them that does not count; an If of 100 with a MatMul of 30 and an Add of 20 inside."""

    def event(sort: str, name: str, start: int, end: int) -> dict[str, object]:
        about = {"cat": "Session"} if sort == "model_run" else {"cat": "Node", "args": {"op_name": sort}}
        return {**about, "name": name, "ts": start, "dur": end - start}

    def one(start: int, add: int) -> list[dict[str, object]]:
        return [
            event("model_run", "model_run", start, start + 200),
            event("MatMul", "m_kernel_time", start + 20, start + 50),
            event("Add", "a_kernel_time", start + 60, start + 60 + add),
            event("If", "i_kernel_time", start + 10, start + 110),
            event("MatMul", "n_kernel_time", start + 110, start + 150),
        ]

    first, second = tmp_path / "first.json", tmp_path / "second.json"
    before = {"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 5}
    second.write_text(json.dumps([before, *one(1000, 40), *one(2000, 20), *one(3000, 10)]))
    first.write_text(json.dumps([*one(0, 20)][:2]))
    found = op_times({first: ["x"], second: ["", "x", "x"]})
    micro = [(op.op, round(1e6 * op.seconds, 3), op.nodes) for op in found["x"]]
    assert micro == [("MatMul", 100, 3), ("If", 55, 1), ("Add", 15, 1)]
    assert found["x"][0] == OpTime("MatMul", found["x"][0].seconds, 3)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = compiled("gpt2", tmp_path / "out")
    options = [str(folder), "--batch", "3", "--length", "5", "--steps", "2", "--runs", "1", "--threads", "1"]
    assert run(["bench", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{folder} on CPUExecutionProvider, 1 thread; one run"
    assert lines[2].startswith("prefill 3 × 5 tokens  ")
    assert lines[3].startswith("decode  3 × 1 token after 5  ")
    assert lines[3].endswith(" tokens/s")
    assert [line.split(",")[0] for line in lines if line.startswith("ops")] == ["ops of prefill", "ops of decode"]
    assert run(["bench", *options, "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["batch"], data["threads"], data["unit"]) == (3, 1, "tokens")
    assert [(p["phase"], p["calls"]) for p in data["phases"]] == [("prefill", 1), ("decode", 2)]
    assert set(data["phases"][0]["milliseconds"]) == {"median", "least", "most"}
    assert set(data["phases"][0]["ops"][0]) == {"op", "nodes", "milliseconds"}
    assert run(["bench", str(EXAMPLES / "gpt2.yaml")]) == 1
    assert "SEQ516" in capsys.readouterr().err
