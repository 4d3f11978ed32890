"""Half precision: what must be computed in float32 is, and the manifest says what the rest costs."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from small_models import make
from test_onnx_last_logits import SPEC

import seqspec
from seqspec.backends.onnx import export
from seqspec.graph.ir import Graph

FLOAT = onnx.TensorProto.FLOAT
IN_HALF = {"Softmax", "LogSoftmax", "Cos", "Sin", "Exp", "ReduceMean", "ReduceSum"}
"""What must not run in 16 bits."""


def kinds(graph: Graph, dtype: str, target: str) -> list[tuple[str, dict[str, object], list[ir.DataType | None]]]:
    found = []
    for made in export(graph, dtype=dtype, target=target).values():
        for node in made.graph.all_nodes():
            attributes = {k: a.value for k, a in node.attributes.items()}
            found.append((node.op_type, attributes, [v.dtype for v in node.inputs if v is not None]))
    return found


@pytest.mark.parametrize("target", ["cuda", "portable"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["grouped", "mistral", "gpt", "bert", "bahdanau"])
def test_sums_and_exponentials_are_in_float32(name: str, dtype: str, target: str) -> None:
    half = ir.DataType[dtype.upper()]
    found = kinds(make(name), dtype, target)
    assert {op for op, _, inputs in found if op in IN_HALF and half in inputs} == set()
    for op, attributes, _ in found:
        if op in ("LayerNormalization", "RMSNormalization"):
            assert attributes["stash_type"] == FLOAT
        if op == "Attention":
            assert attributes["softmax_precision"] == FLOAT


@pytest.mark.parametrize(("dtype", "kernel"), [("float16", True), ("bfloat16", True), ("float32", False)])
def test_which_dtypes_have_the_kernel_on_cuda(dtype: str, kernel: bool) -> None:
    ops = {op for op, *_ in kinds(make("grouped"), dtype, "cuda")}
    assert ("GroupQueryAttention" in ops) == kernel
    assert "SkipSimplifiedLayerNormalization" in ops


def test_the_manifest_says_what_it_costs(tmp_path: Path) -> None:
    half, single = (seqspec.to_onnx(SPEC, tmp_path / dtype, dtype=dtype) for dtype in ("float16", "float32"))
    error = json.loads((half / "seqspec.json").read_text())["error"]
    assert list(error) == ["logits"]
    assert 1e-5 < error["logits"] < 1e-2
    assert "error" not in json.loads((single / "seqspec.json").read_text())
