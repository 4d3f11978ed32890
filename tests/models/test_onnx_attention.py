"""GroupQueryAttention and the way around it: every sort of padding, chunks, batches, and caches in buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import pytest
from small_models import SPECS, Array, Runner, close, make, opened, random_weights, reference, run

from seqspec.backends.onnx import export, model
from seqspec.graph.ir import Graph
from seqspec.graph.signature import signature

DECODERS = ("grouped", "mistral")
PATTERNS = {
    "none": [[1, 1, 1, 1, 1, 1, 1]] * 3,
    "right": [[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0, 0]],
    "left": [[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 1]],
    "holes": [[1, 0, 1, 1, 0, 1, 1], [0, 1, 0, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1, 0]],
    "one row": [[1, 1, 1, 1, 1, 1, 1]],
    "one row, right": [[1, 1, 1, 1, 0, 0, 0]],
    "one row, left": [[0, 0, 1, 1, 1, 1, 1]],
    "an empty row": [[0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0]],
}
CUTS: dict[str, list[int]] = {"whole": [], "steps": [1, 2, 3, 4, 5, 6], "chunks": [2, 5], "prompt and steps": [4, 5, 6]}


def mask_of(pattern: str) -> Array:
    return np.array(PATTERNS[pattern], np.int64)


def calls(mask: Array, cuts: list[int]) -> Iterator[dict[str, Array]]:
    """Ids and the mask up to the end of each chunk."""
    ids = np.random.default_rng(5).integers(1, 33, mask.shape)
    for start, end in zip([0, *cuts], [*cuts, mask.shape[1]], strict=True):
        yield {"input_ids": ids[:, start:end], "attention_mask": mask[:, :end]}


def judged(graph: Graph, weights: dict[str, Array], mask: Array) -> tuple[Array, dict[str, Array]]:
    (whole,) = calls(mask, [])
    return reference(graph, weights, whole)


def at_real(array: Array, mask: Array, axis: int) -> Array:
    """What stands at real positions; the rest may be anything finite."""
    assert np.isfinite(array).all()
    return np.moveaxis(array, axis, 1)[mask.astype(bool)]


def check(graph: Graph, runner: Runner, weights: dict[str, Array], mask: Array, cuts: list[int]) -> None:
    wanted, presents = judged(graph, weights, mask)
    parts = [runner(call) for call in calls(mask, cuts)]
    close(at_real(np.concatenate([p["logits"] for p in parts], 1), mask, 1), at_real(wanted, mask, 1))
    for name, present in presents.items():
        if name == "present_state.attention_mask":
            continue  # the caller's, since a file takes the whole mask
        close(at_real(parts[-1][name], mask, 2), at_real(present, mask, 2))


@pytest.mark.parametrize("optimise", [True, False])
@pytest.mark.parametrize("name", DECODERS)
def test_any_padding_in_any_chunks(name: str, optimise: bool) -> None:
    graph = make(name)
    weights = random_weights(graph)
    runner = Runner(graph, export(graph, weights), optimise)
    for pattern in PATTERNS:
        for cuts in CUTS.values():
            runner.state = {}
            check(graph, runner, weights, mask_of(pattern), cuts)


@pytest.mark.parametrize("name", DECODERS)
def test_functions_say_what_the_kernel_computes(name: str) -> None:
    graph = make(name)
    weights = random_weights(graph)
    runner = Runner(graph, {})
    inlined = onnx.inliner.inline_local_functions(ir.to_proto(model(graph, weights)))
    assert {node.domain for node in all_nodes(inlined.graph)} == {""}
    runner.sessions["model"] = opened(inlined)
    for pattern in PATTERNS:
        for cuts in CUTS.values():
            runner.state = {}
            check(graph, runner, weights, mask_of(pattern), cuts)


@pytest.mark.parametrize("pattern", ["none", "right", "left", "holes", "one row"])
@pytest.mark.parametrize("name", DECODERS)
def test_caches_in_buffers(name: str, pattern: str) -> None:
    """One buffer of 12 positions for past and present: the kernel and the way around it write into it."""
    graph, mask = make(name), mask_of(pattern)
    weights = random_weights(graph)
    wanted, presents = judged(graph, weights, mask)
    session = Runner(graph, export(graph, weights)).sessions["model"]
    binding, buffers = session.io_binding(), {}
    import onnxruntime as ort

    for state in signature(graph).states:
        if state.past in {i.name for i in session.get_inputs()}:
            shape = [len(mask), *(12 if "past" in str(s) else s for s in state.shape[1:])]
            held = buffers[state.present] = ort.OrtValue.ortvalue_from_numpy(np.full(shape, 7, np.float32))
            binding.bind_ortvalue_input(state.past, held)
            binding.bind_ortvalue_output(state.present, held)
    parts = []
    for call in calls(mask, [3, 4, 6]):
        for key, array in call.items():
            binding.bind_cpu_input(key, np.ascontiguousarray(array))
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        parts.append(binding.get_outputs()[-1].numpy())
    close(at_real(np.concatenate(parts, 1), mask, 1), at_real(wanted, mask, 1))
    for present, held in buffers.items():
        close(at_real(held.numpy()[:, :, :7], mask, 2), at_real(presents[present], mask, 2))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_encoders(pattern: str) -> None:
    graph, mask = make("bert"), mask_of(pattern)
    ids = np.random.default_rng(5).integers(1, 33, mask.shape)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2}
    weights = random_weights(graph)
    made = model(graph, weights)
    assert "GroupQueryAttention" in {n.op_type for n in made.graph.all_nodes()}
    wanted, _ = reference(graph, weights, given)
    for proto in (ir.to_proto(made), onnx.inliner.inline_local_functions(ir.to_proto(made))):
        close(run(opened(proto), given)["embedding"], wanted)


@pytest.mark.parametrize("target", ["cpu", "portable"])
@pytest.mark.parametrize("mask", [[[0, 1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0, 0]], [[0, 0, 0, 0, 0, 0, 1]], [[0] * 7]])
def test_padding_that_all_rows_have_is_not_computed(mask: Any, target: str) -> None:
    graph = make("bert")
    ids = np.arange(7 * len(mask)).reshape(-1, 7)
    weights = random_weights(graph)
    given = {"input_ids": ids, "attention_mask": np.array(mask), "token_type_ids": ids % 2}
    wanted, _ = reference(graph, weights, given)
    made = model(graph, weights, target=target)
    onnx.checker.check_model(ir.to_proto(made), full_check=True)
    close(run(opened(ir.to_proto(made)), given)["embedding"], wanted)
    trimmed = {str(d) for n in made.graph for v in n.outputs if v.shape for d in v.shape}
    assert "trimmed_sequence_length" in trimmed


def test_padding_that_an_output_shows_is_computed() -> None:
    SPECS["hidden"] = SPECS["bert"].partition("head:")[0]
    made = model(make("hidden"), random_weights(make("hidden")))
    assert "trimmed_sequence_length" not in {str(d) for n in made.graph for v in n.outputs if v.shape for d in v.shape}


def fits(name: str, mask: Any, time: int) -> tuple[bool, list[int], int]:
    """What the file itself finds out about a mask."""
    proto = ir.to_proto(model(make(name)))
    function = next(f for f in proto.functions if f.name == "KernelLengths")
    helper, kinds = onnx.helper, onnx.TensorProto
    node = helper.make_node("KernelLengths", ["mask", "time"], ["fits", "last", "total"], domain="seqspec")
    node.overload = function.overload
    inputs = [
        helper.make_tensor_value_info("mask", kinds.BOOL, ["b", "s"]),
        helper.make_tensor_value_info("time", kinds.INT64, [1]),
    ]
    outputs = [
        helper.make_tensor_value_info("fits", kinds.BOOL, []),
        helper.make_tensor_value_info("last", kinds.INT32, ["b"]),
        helper.make_tensor_value_info("total", kinds.INT32, []),
    ]
    graph = helper.make_graph([node], "lengths", inputs, outputs)
    small = helper.make_model(graph, opset_imports=proto.opset_import, functions=[function], ir_version=10)
    found = run(opened(small), {"mask": np.array(mask, bool), "time": np.array([time])})
    return bool(found["fits"]), found["last"].tolist(), int(found["total"])


@pytest.mark.parametrize(
    ("mask", "time", "fit"),
    [
        ([[1, 1, 1]], 3, True),
        ([[1, 1, 0], [1, 0, 0]], 3, True),
        ([[0, 1, 1]], 3, False),
        ([[1, 0, 1]], 3, False),
        ([[0, 0, 0]], 3, False),
        ([[1, 1, 1], [1, 1, 1]], 1, True),
        ([[1, 1, 1]], 2, True),
        ([[1, 1, 1], [1, 1, 1]], 2, False),  # the kernel refuses a chunk after a past in a batch
        ([[1, 1, 0]], 1, False),  # the kernel would write the new key over the last real one
        ([[1, 1, 0]], 2, False),
        ([[1] * 8192], 1, True),
        ([[1] * 8193], 1, False),  # beyond the stored rotary tables
    ],
)
def test_when_the_kernel_is_used(mask: Any, time: int, fit: bool) -> None:
    found, last, total = fits("grouped", mask, time)
    assert (found, last, total) == (fit, [sum(row) - 1 for row in mask], len(mask[0]))


def test_beyond_the_stored_tables() -> None:
    graph = make("grouped")
    weights = random_weights(graph)
    kernel, plain = (Runner(graph, export(graph, weights, target=t)) for t in ("cpu", "portable"))  # type: ignore[arg-type]
    ids = np.random.default_rng(5).integers(1, 33, (1, 6))
    for runner in (kernel, plain):
        rng = np.random.default_rng(6)
        for name in [s.past for s in runner.states if s.past.endswith(("key", "value"))]:
            runner.state[name] = rng.normal(0, 1, (1, 2, 8190, 16)).astype(np.float32)
    for start in (0, 1, 2, 4):
        call = {"input_ids": ids[:, start : start + 1], "attention_mask": np.ones((1, 8191 + start), np.int64)}
        if start == 4:
            call = {"input_ids": ids[:, 3:], "attention_mask": np.ones((1, 8196), np.int64)}
        close(kernel(call)["logits"], plain(call)["logits"])


def test_one_projection_and_one_node_where_attention_was() -> None:
    graph = model(make("grouped")).graph
    top = [node.op_type for node in graph]
    assert top.count("MatMul") == 1 + 3 * 5
    assert top.count("If") == 3
    assert not {"CumSum", "Cos", "Expand", "Attention", "RotaryEmbedding"} & set(top)


@pytest.mark.parametrize("name", ["grouped", "gpt", "bert"])
def test_attention_reads_heads_as_they_are_projected(name: str) -> None:
    """Not where a cache keeps a window: its columns are dropped before the kernel reads them."""
    nodes = list(model(make(name), target="portable").graph)
    assert moved(nodes) == 0
    found = [node for node in nodes if node.op_type == "Attention"]
    cached = name != "bert"
    assert {(len(node.inputs), len(node.outputs)) for node in found} == {(6, 3) if cached else (4, 1)}


def test_heads_that_are_normed_first_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    normed = SPECS["grouped"].replace("head_dim: 16", "head_dim: 16, qk_norm: {kind: rmsnorm}")
    monkeypatch.setitem(SPECS, "normed", normed)
    nodes = list(model(make("normed"), target="portable").graph)
    assert moved(nodes) == 3 * 4
    assert {len(node.inputs) for node in nodes if node.op_type == "Attention"} == {4}


def moved(nodes: list[ir.Node]) -> int:
    """How many transposes move an axis of heads."""
    return sum(node.op_type == "Transpose" and len(node.attributes["perm"].as_ints()) == 4 for node in nodes)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)
