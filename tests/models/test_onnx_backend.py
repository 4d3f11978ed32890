"""ONNX files against the float64 reference of the graph as it was built: whole, in chunks, padded, split in two."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import pytest
from small_models import SPECS, STATEFUL, Runner, close, feeds, make, opened, random_weights, reference

from seqspec.backends.onnx import export, model


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
