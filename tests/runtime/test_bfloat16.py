"""bfloat16: what the CPU can do with it, and what is said where it cannot."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from small_targets import fault, spec

import seqspec
from seqspec.runtime import bfloat16


@pytest.mark.parametrize("shape", [(3,), (2, 0, 4), (1, 5, 7)])
def test_arrays_go_through(shape: tuple[int, ...]) -> None:
    sizes = [None] * len(shape)
    ports = [
        [helper.make_tensor_value_info(f"{n}_{way}", kind, sizes) for n, kind in (("a", 16), ("b", TensorProto.INT64))]
        for way in ("in", "out")
    ]
    nodes = [helper.make_node("Identity", [f"{n}_in"], [f"{n}_out"]) for n in "ab"]
    graph = helper.make_graph(nodes, "g", *ports)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    a = np.random.default_rng(0).standard_normal(shape).astype(ml_dtypes.bfloat16)
    b = np.arange(a.size).reshape(shape)
    made = bfloat16.run(session, ["a_out", "b_out"], {"a_in": a, "b_in": b})
    assert [m.dtype for m in made] == [a.dtype, b.dtype]
    np.testing.assert_array_equal(made[0].view(np.uint16), a.view(np.uint16))
    np.testing.assert_array_equal(made[1], b)


def test_the_cpu_computes_no_bfloat16(tmp_path: Path) -> None:
    with fault("SEQ411", "bfloat16", "CPU"):
        seqspec.to_onnx(spec("gpt2"), tmp_path / "out", dtype="bfloat16")
    folder = seqspec.to_onnx(spec("gpt2"), tmp_path / "out", dtype="bfloat16", target="portable")
    result = seqspec.verify(folder)
    assert result.passed
    assert "not checked" in result.note
    with fault("SEQ501", "model.onnx"):
        seqspec.Session(folder)
