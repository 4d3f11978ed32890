"""Logits of the last real position alone: the same numbers, with any padding and in any chunks, for less work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from small_models import SPECS, Array, Runner, close, feeds, make, random_weights, reference
from test_onnx_attention import CUTS, PATTERNS, calls, judged, mask_of

import seqspec
from seqspec.backends.onnx import export, model
from seqspec.diagnostics import CompileError

SPEC = {
    "seqspec": 1,
    "name": "tiny",
    "decoder": {
        "input": {"kind": "tokens", "vocab_size": 31},
        "d_model": 16,
        "position": {"kind": "rope"},
        "layers": [{"repeat": 2, "block": [{"kind": "attention", "heads": 1}, {"kind": "ffn", "d_ff": 24}]}],
    },
    "head": {"kind": "lm", "tied": True},
}

SPECS["gemma"] = (
    SPECS["grouped"]
    .replace("norm: rmsnorm", "norm: {kind: rmsnorm, offset: 1}")
    .replace("norm_placement: pre", "norm_placement: sandwich")
    .replace("kind: lm}", "kind: lm, softcap: 3}")
)


def last_real(whole: Array, mask: Array, start: int) -> tuple[Array, Array]:
    """Which rows have a real token from `start` on, and their logits at the last one."""
    rows = np.flatnonzero(mask[:, start:].any(1))
    places = [start + np.flatnonzero(mask[row, start:])[-1] for row in rows]
    return rows, whole[rows, places]


def chunk_mask(call: dict[str, Array]) -> dict[str, Array]:
    """As a recurrent model takes it: of the chunk alone."""
    return call | {"attention_mask": call["attention_mask"][:, -call["input_ids"].shape[1] :]}


@pytest.mark.parametrize("target", ["cpu", "portable"])
@pytest.mark.parametrize("name", ["grouped", "mistral", "gpt", "gemma", "lstm_lm"])
def test_they_are_the_last_real_ones(name: str, target: Any) -> None:
    graph = make(name)
    weights = random_weights(graph)
    runner = Runner(graph, export(graph, weights, target=target, logits="last"))
    whole = any("past" in str(v.shape[1]) for v in graph.root.inputs)
    for pattern in PATTERNS:
        mask = mask_of(pattern)
        wanted, _ = judged(graph, weights, mask)
        for cuts in CUTS.values():
            runner.state, given = {}, list(calls(mask, cuts))
            found = [runner(call if whole else chunk_mask(call))["logits"] for call in given]
            assert {part.shape[1] for part in found} == {1}
            for part, call in zip(found, given, strict=True):
                end = call["attention_mask"].shape[1]
                rows, logits = last_real(wanted[:, :end], mask[:, :end], end - call["input_ids"].shape[1])
                close(part[rows, 0], logits)


def test_of_two_stacks() -> None:
    graph = make("transformer")
    weights, given = random_weights(graph), feeds(graph)
    wanted, _ = reference(graph, weights, given)
    found = Runner(graph, export(graph, weights, logits="last"))(given)["logits"]
    rows, logits = last_real(wanted, given["decoder_attention_mask"], 0)
    close(found[rows, 0], logits)


def test_of_a_tied_map_with_a_bias() -> None:
    spec = {"seqspec": 1, "name": "tiny", "encoder": SPEC["decoder"], "head": {"kind": "masked_lm", "tied": True}}
    graph = seqspec.build(spec)
    weights, given = random_weights(graph), feeds(graph)
    given["input_ids"] %= 31
    wanted, _ = reference(graph, weights, given)
    found = Runner(graph, export(graph, weights, logits="last"))(given)["logits"]
    assert found.shape[1] == 1
    rows, logits = last_real(wanted, given["attention_mask"], 0)
    close(found[rows, 0], logits)


@pytest.mark.parametrize("name", ["grouped", "gemma"])
def test_the_last_feed_forward_is_computed_there_alone(name: str) -> None:
    made = model(make(name), logits="last")
    onnx.checker.check_model(ir.to_proto(made), full_check=True)
    shapes = {n.name: [str(d) for d in n.outputs[0].shape or ()] for n in made.graph if n.op_type == "MatMul"}
    last = [name for name, shape in shapes.items() if shape[1] == "1"]
    assert len(last) == 5  # of the last layer: behind attention, and its feed-forward; and the head
    assert all("layers.2" in name or name.startswith("head") for name in last)


@pytest.mark.parametrize("name", ["bilstm", "bert"])
def test_without_logits_at_every_position_there_is_no_last(name: str) -> None:
    with pytest.raises(CompileError) as caught:
        model(make(name), logits="last")
    assert caught.value.code == "SEQ405"


def test_it_is_compiled_verified_and_generates(tmp_path: Path) -> None:
    every, last = (seqspec.to_onnx(SPEC, tmp_path / kind, logits=kind) for kind in ("all", "last"))  # type: ignore[arg-type]
    verified = seqspec.verify(last)
    assert verified.passed
    assert "logits" in verified.limits
    ids = [[3, 7, 2], [5], [1, 2, 3, 4, 5]]
    made = [seqspec.Session(path).generate(ids, max_new_tokens=5) for path in (every, last)]
    np.testing.assert_array_equal(*made)
    (output,) = (o for o in ort.InferenceSession(last / "model.onnx").get_outputs() if o.name == "logits")
    assert output.shape == ["batch_size", 1, 31]
