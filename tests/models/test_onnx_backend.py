"""ONNX files against the float64 reference of the graph as it was built: whole, in chunks, padded, split in two."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import onnxruntime as ort
import pytest
import yaml

from seqspec.backends.onnx import export, model, refuse_if_too_large, write_directory
from seqspec.backends.weights import initial
from seqspec.build import build
from seqspec.diagnostics import CompileError
from seqspec.graph.interpret import interpret
from seqspec.graph.ir import Graph
from seqspec.graph.signature import signature
from seqspec.spec.model import Model

Array = np.ndarray
BLOCK = "[{kind: attention, heads: 4, kv_heads: 2}, {kind: ffn, d_ff: 40, activation: silu, gated: true}]"
CROSS = "[{kind: attention, heads: 2}, {kind: cross_attention, from: encoder, heads: 2}, {kind: ffn, d_ff: 20}]"
SPECS = {
    "bilstm": """
        encoder:
          input: {kind: tokens, vocab_size: 50, d_model: 12, pad_id: 0}
          layers: [{kind: lstm, hidden_size: 9, num_layers: 2, bidirectional: true, dropout: 0.3}]
        head: {kind: classifier, classes: 2, pool: final_state}""",
    "gru": """
        encoder:
          input: {kind: features, size: 5}
          layers: [{kind: gru, hidden_size: 7}]
        head: {kind: regression, size: 1, pool: last}""",
    "lstm_lm": """
        decoder:
          input: {kind: tokens, vocab_size: 33, d_model: 12}
          layers: [{kind: lstm, hidden_size: 11, num_layers: 2}]
        head: {kind: lm}""",
    "gpt": """
        decoder:
          input: {kind: tokens, vocab_size: 57}
          d_model: 18
          position: {kind: learned, max_length: 24}
          norm: {kind: layernorm, eps: 1.0e-5}
          norm_placement: pre
          dropout: 0.1
          layers: [{repeat: 3, block: [{kind: attention, heads: 3}, {kind: ffn, d_ff: 40, activation: gelu_tanh}]}]
        head: {kind: lm, tied: true}""",
    "llama": f"""
        decoder:
          input: {{kind: tokens, vocab_size: 61, pad_id: 0}}
          d_model: 32
          bias: false
          position: {{kind: rope, theta: 10000}}
          norm: rmsnorm
          norm_placement: pre
          layers: [{{repeat: 2, block: {BLOCK}}}]
        head: {{kind: lm, tied: true}}""",
    "bert": """
        encoder:
          input: {kind: tokens, vocab_size: 50, pad_id: 0, token_types: 2, norm: {kind: layernorm, eps: 1.0e-12}}
          d_model: 24
          position: {kind: learned, max_length: 32}
          norm: {kind: layernorm, eps: 1.0e-12}
          norm_placement: post
          layers: [{repeat: 2, block: [{kind: attention, heads: 3}, {kind: ffn, d_ff: 30, activation: gelu}]}]
        head: {kind: embedding, pool: mean, normalize: true}""",
    "transformer": f"""
        defaults: {{d_model: 16, position: sinusoidal, norm: layernorm, norm_placement: post, dropout: 0.1}}
        encoder:
          input: {{kind: tokens, vocab_size: 37, pad_id: 0, scale: sqrt_d_model}}
          layers: [{{repeat: 2, block: [{{kind: attention, heads: 2}}, {{kind: ffn, d_ff: 20, activation: relu}}]}}]
        decoder:
          input: {{kind: tokens, share: encoder.input}}
          layers: [{{repeat: 2, block: {CROSS}}}]
        head: {{kind: lm, tied: true}}""",
    "bahdanau": """
        encoder:
          input: {kind: tokens, vocab_size: 40, d_model: 12, pad_id: 0}
          layers: [{kind: gru, hidden_size: 10, bidirectional: true}]
        decoder:
          input: {kind: tokens, vocab_size: 45, d_model: 12, pad_id: 0}
          layers:
            - kind: gru
              hidden_size: 14
              initial_state: {kind: bridge, from: encoder, map: linear_tanh}
              attend: {from: encoder, score: additive, d_attention: 9, query: previous}
        head: {kind: lm}""",
}
SPLIT = {"transformer", "bahdanau"}
STATEFUL = ("gru", "lstm_lm", "gpt", "llama", "transformer", "bahdanau")
# True is real: padding on the right, on the left, in the middle, none
MASK = np.array([[1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1], [1, 1, 0, 1, 0, 1, 1], [1, 1, 1, 1, 1, 1, 1]])


def make(name: str) -> Graph:
    text = f"seqspec: 1\nname: {name}\n"
    return build(Model.model_validate(yaml.safe_load(text) | yaml.safe_load(SPECS[name])))


def random_weights(graph: Graph) -> dict[str, Array]:
    """Around where parameters start, but norms and biases are no ones and zeros."""
    rng = np.random.default_rng(3)
    return {p.name: initial(p, 0) + rng.normal(0, 0.1, p.shape).astype(np.float32) for p in graph.root.params}


def feeds(graph: Graph, mask: Array = MASK) -> dict[str, Array]:
    """An array for every input but position_ids; the decoder's mask is the encoder's upside down."""
    rng, batch_time = np.random.default_rng(5), mask.shape
    made: dict[str, Array] = {}
    for value in graph.root.inputs:
        if value.name.endswith("attention_mask"):
            made[value.name] = (mask[::-1] if value.name.startswith("decoder") else mask).astype(np.int64)
        elif value.dtype == "float":
            made[value.name] = rng.normal(0, 1, (*batch_time, value.shape[2])).astype(np.float32)  # type: ignore[arg-type]
        elif not value.name.endswith("position_ids"):
            made[value.name] = rng.integers(0, 2 if "types" in value.name or "type" in value.name else 33, batch_time)
    return made


def reference(graph: Graph, weights: Mapping[str, Array], given: Mapping[str, Array]) -> tuple[Array, dict[str, Array]]:
    """The first output and the presents by public name."""
    doubles = {k: v.astype(np.float64) for k, v in weights.items()}
    arguments = [given.get(v.name) for v in graph.root.inputs]
    outputs, present = interpret(graph.root, np, doubles, arguments)
    named = {s.present: present[s.path] for s in signature(graph).states}
    return outputs[0], {k: v for k, v in named.items() if v is not None}


def session(made: ir.Model, optimise: bool = True) -> ort.InferenceSession:
    return opened(ir.to_proto(made), optimise)


def opened(proto: onnx.ModelProto, optimise: bool = True) -> ort.InferenceSession:
    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(opened: ort.InferenceSession, values: Mapping[str, Array]) -> dict[str, Array]:
    names = [o.name for o in opened.get_outputs()]
    return dict(zip(names, opened.run(names, {i.name: values[i.name] for i in opened.get_inputs()}), strict=True))


class Runner:
    """The files of a model, driven as a Session drives them: the encoder first, pasts from presents."""

    def __init__(self, graph: Graph, models: Mapping[str, ir.Model], optimise: bool = True) -> None:
        self.sessions = {role: session(m, optimise) for role, m in models.items()}
        self.states = signature(graph).states
        self.state: dict[str, Array] = {}

    def __call__(self, given: Mapping[str, Array]) -> dict[str, Array]:
        main = self.sessions.get("decoder") or self.sessions["model"]
        if not self.state:
            self.start(main, given)
        out = run(main, {**given, **self.state})
        self.state |= {s.past: out[s.present] for s in self.states if s.present in out}
        return out

    def start(self, main: ort.InferenceSession, given: Mapping[str, Array]) -> None:
        out = run(self.sessions["encoder"], given) if "encoder" in self.sessions else {}
        batch = len(next(iter(given.values())))
        for port in main.get_inputs():
            found = next((s for s in self.states if s.past == port.name), None)
            if found is not None:
                sizes = [batch if d == "batch_size" else 0 if d == "past_sequence_length" else d for d in port.shape]
                self.state[found.past] = out[found.present] if found.present in out else np.zeros(sizes, np.float32)


def close(found: Array, wanted: Array, atol: float = 2e-5) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=atol)


@pytest.fixture(scope="module", params=SPECS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("optimise", [True, False])
@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_whole(name: str, optimise: bool, target: Any) -> None:
    graph = make(name)
    weights, given = random_weights(graph), feeds(graph)
    wanted, presents = reference(graph, weights, given)
    out = Runner(graph, export(graph, weights, target=target), optimise)(given)
    close(next(iter(out.values())), wanted)
    for present in presents.keys() & out.keys():
        close(out[present], presents[present])


@pytest.mark.parametrize("stateful", STATEFUL)
@pytest.mark.parametrize("cuts", [[1, 2, 3, 4, 5, 6], [3], [5, 6]])
def test_chunks_are_the_whole(stateful: str, cuts: list[int]) -> None:
    graph = make(stateful)
    weights, given = random_weights(graph), feeds(graph)
    wanted, presents = reference(graph, weights, given)
    runner = Runner(graph, export(graph, weights))
    late = {k: v for k, v in given.items() if k not in graph.once}
    parts, total = [], {v.name for v in graph.root.inputs if "past" in str(v.shape[1])}
    for start, end in zip([0, *cuts], [*cuts, 7], strict=True):
        chunk = {k: v[:, :end] if k in total else v[:, start:end] for k, v in late.items()}
        parts.append(runner(given | chunk))
    found = [next(iter(part.values())) for part in parts]
    if found[0].ndim == 3:
        close(np.concatenate(found, 1), wanted)
    for state in runner.states:
        if state.present in parts[-1]:
            close(parts[-1][state.present], presents[state.present])


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 1)])
def test_small_sizes(name: str, shape: tuple[int, int]) -> None:
    graph = make(name)
    weights, given = random_weights(graph), feeds(graph, np.ones(shape, int))
    wanted, _ = reference(graph, weights, given)
    close(next(iter(Runner(graph, export(graph, weights))(given).values())), wanted)


def test_full_check_and_types(name: str) -> None:
    for made in export(make(name)).values():
        onnx.checker.check_model(ir.to_proto(made), full_check=True)
        for graph in made.graphs():
            values = ir.convenience.create_value_mapping(graph).values()
            assert [v.name for v in values if v.shape is None or v.dtype is None] == []


def test_functions_say_the_same(name: str) -> None:
    graph = make(name)
    weights, given = random_weights(graph), feeds(graph)
    wanted, _ = reference(graph, weights, given)
    runner = Runner(graph, export(graph, weights))
    for role, made in export(graph, weights).items():
        inlined = onnx.inliner.inline_local_functions(ir.to_proto(made))
        assert {node.domain for node in inlined.graph.node} == {""}
        runner.sessions[role] = opened(inlined)
    close(next(iter(runner(given).values())), wanted)


def test_kernels_are_used_where_there_is_one() -> None:
    graph = make("gpt")
    counts = {
        target: [n.op_type for n in model(graph, target=target).graph].count("SkipLayerNormalization")
        for target in ("cpu", "portable")
    }
    assert counts == {"cpu": 7, "portable": 0}  # two in each layer, the first behind the embeddings' sum, and the last


def test_names_of_inputs_and_outputs() -> None:
    models = export(make("transformer"))
    ports = {role: [v.name for v in (*m.graph.inputs, *m.graph.outputs)] for role, m in models.items()}
    layers = [f"{n}.encoder.{leaf}" for n in range(2) for leaf in ("key", "value")]
    own = [f"{n}.decoder.{leaf}" for n in range(2) for leaf in ("key", "value")]
    assert ports["encoder"] == [
        "input_ids", "attention_mask", "encoder_attention_mask", *(f"present.{x}" for x in layers)
    ]  # fmt: skip
    assert ports["decoder"] == [
        "decoder_input_ids", "decoder_attention_mask", "encoder_attention_mask",
        *(f"past_key_values.{x}" for x in layers), *(f"past_key_values.{x}" for x in own),
        "logits", *(f"present.{x}" for x in own),
    ]  # fmt: skip
    decoder = models["decoder"].graph
    shapes = {v.name: list(map(str, v.shape or ())) for v in (*decoder.inputs, *decoder.outputs)}
    assert shapes["decoder_attention_mask"] == ["batch_size", "total_sequence_length"]
    assert shapes["past_key_values.0.encoder.key"] == ["batch_size", "2", "encoder_sequence_length", "8"]
    assert shapes["past_key_values.0.decoder.key"] == ["batch_size", "2", "past_sequence_length", "8"]
    assert shapes["present.0.decoder.key"] == ["batch_size", "2", "total_sequence_length", "8"]


def test_half_precision_runs_and_is_near() -> None:
    graph = make("llama")
    weights, given = random_weights(graph), feeds(graph)
    wanted, _ = reference(graph, weights, given)
    runner = Runner(graph, export(graph, weights, dtype="float16"))
    runner.start(runner.sessions["model"], given)
    runner.state = {k: v.astype(np.float16) for k, v in runner.state.items()}
    assert np.abs(runner(given)["logits"] - wanted).max() < 0.02 * np.abs(wanted).max()


def test_bfloat16_is_well_formed(name: str) -> None:
    for made in export(make(name), dtype="bfloat16").values():
        onnx.checker.check_model(ir.to_proto(made), full_check=True)


# the output directory


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
        "from test_onnx_backend import make, write\n"
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
            if self.reads > len(self) + 9:  # each is read once to be checked, then again to be written
                raise failure
            return super().__getitem__(key)

    weights = Failing(random_weights(graph))
    with pytest.raises(CompileError if failure is OSError else failure):
        write(graph, path, weights=weights)
    assert content(path) == before
    assert [f.name for f in tmp_path.iterdir()] == ["out"]


def test_leftovers_of_killed_runs_are_removed(tmp_path: Path) -> None:
    ended = subprocess.check_output([sys.executable, "-c", "import os; print(os.getpid())"], text=True).strip()
    dead, alive = tmp_path / f".out.seqspec-{ended}-ab12", tmp_path / f".out.seqspec-{os.getpid()}-cd34"
    dead.mkdir()
    alive.mkdir()
    (dead / "model.onnx").write_text("half")
    write(make("gru"), tmp_path / "out")
    assert {f.name for f in tmp_path.iterdir()} == {"out", alive.name}


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
