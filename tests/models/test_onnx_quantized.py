"""Weights in 8 and 4 bits: what is stored, what the function says, what the kernel makes of it, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx_ir as ir
import pytest
from small_models import SPECS, Runner, feeds, make, opened, random_weights, reference

import seqspec
from seqspec.backends.onnx import export
from seqspec.diagnostics import CompileError
from seqspec.ops.quantized import numbers, restored
from seqspec.passes.pipeline import rounded

SPECS["wide"] = SPECS["grouped"].replace("d_model: 32", "d_model: 80").replace("d_ff: 40", "d_ff: 72")
SPECS["biased"] = SPECS["mistral"].replace("d_model: 24", "d_model: 40").replace("lm}", "lm, tied: true}")
SPEC: dict[str, Any] = {
    "seqspec": 1,
    "name": "tiny",
    "decoder": {
        "input": {"kind": "tokens", "vocab_size": 70},
        "d_model": 64,
        "position": {"kind": "rope"},
        "layers": [{"repeat": 2, "block": [{"kind": "attention", "heads": 2}, {"kind": "ffn", "d_ff": 96}]}],
    },
    "head": {"kind": "lm", "tied": True},
}


@pytest.mark.parametrize(("bits", "worst"), [(8, 1 / 127), (4, 1 / 7)])
@pytest.mark.parametrize("columns", [32, 33, 7, 100])
def test_rounding(bits: int, worst: float, columns: int) -> None:
    weight = np.random.default_rng(0).normal(0, 1, (5, columns)).astype(np.float32)
    weight[3] = 0
    weight[4, ::2] *= -100
    q, scale = numbers(np, weight, bits)
    assert (q.shape, scale.shape) == ((5, -(-columns // 32), 32), (5, -(-columns // 32)))
    back = restored(np, q, scale, bits, columns)
    for start in range(0, columns, 32):
        block = slice(start, start + 32)
        largest = np.abs(weight[:, block]).max(1)
        assert (np.abs(back - weight)[:, block].max(1) <= worst * largest).all()
        np.testing.assert_allclose(np.abs(back[:, block]).max(1), largest, rtol=1e-6)  # kept as it is
    np.testing.assert_array_equal(restored(np, *numbers(np, back, bits), bits, columns), back)  # and all, a second time


@pytest.mark.parametrize("bits", ["int8", "int4"])
@pytest.mark.parametrize("name", ["wide", "biased", "gpt"])
def test_kernel_and_function(name: str, bits: Any) -> None:
    graph = make(name)
    weights, given = random_weights(graph), feeds(graph)
    wanted, _ = reference(rounded(graph, "cpu", "float32", bits), weights, given)
    largest = np.abs(wanted).max()
    (made,) = export(graph, weights, quantize=bits).values()
    onnx.checker.check_model(ir.to_proto(made), full_check=True)
    runner = Runner(graph, {"model": made})
    assert np.abs(runner(given)["logits"] - wanted).max() < 0.05 * largest  # x in 8 bits
    plain = Runner(graph, {})
    plain.sessions["model"] = opened(onnx.inliner.inline_local_functions(ir.to_proto(made)))
    assert np.abs(plain(given)["logits"] - wanted).max() < 2e-6 * largest


def test_what_is_quantized() -> None:
    (made,) = export(make("biased"), quantize="int4").values()
    kernels = [n.inputs[1].name for n in made.graph.all_nodes() if n.op_type == "MatMulNBits"]  # type: ignore[union-attr]
    assert len(kernels) == len(set(kernels)) == 6 * 2 + 4 * 3 + 2 * 2 + 1
    kinds = {str(v.name): v.dtype for v in made.graph.initializers.values()}
    assert kinds["decoder.embed_tokens.weight"] == ir.DataType.FLOAT
    assert kinds["decoder.embed_tokens.weight.int4"] == ir.DataType.UINT8
    sizes = {name: made.graph.initializers[name].shape for name in kinds if name.endswith(".int4")}
    assert [*sizes["decoder.embed_tokens.weight.int4"]] == [61, 2, 16]


def test_compiled_verified_and_described(tmp_path: Path) -> None:
    for dtype, bits, most in (("float32", "int8", 0.05), ("float32", "int4", 0.5), ("float16", "int4", 0.5)):
        path = seqspec.to_onnx(SPEC, tmp_path / f"{dtype}{bits}", dtype=dtype, quantize=bits)  # type: ignore[arg-type]
        manifest = json.loads((path / "seqspec.json").read_text())
        assert manifest["quantize"] == bits
        assert 1e-3 < manifest["error"]["logits"] < most
        assert {"graph": "model", "form": "com.microsoft.MatMulNBits", "count": 9}.items() <= next(
            f for f in manifest["forms"] if "NBits" in f["form"]
        ).items()
        assert seqspec.verify(path, seed=3).passed  # from what the files hold
    full, small = ((tmp_path / f"float32{bits}" / "model.onnx.data").stat().st_size for bits in ("int8", "int4"))
    assert small < full


def test_a_damaged_weight_is_found(tmp_path: Path) -> None:
    path = seqspec.to_onnx(SPEC, tmp_path / "out", quantize="int8", verify=False)
    other = seqspec.to_onnx(SPEC, tmp_path / "other", quantize="int8", seed=1, verify=False)
    from seqspec.runtime.verify import verify

    weights = {name: tensor.detach() for name, tensor in seqspec.to_torch(SPEC, seed=0).state_dict().items()}
    assert verify(path, weights=weights).passed
    assert not verify(other, weights=weights).passed


def test_portable_has_no_such_kernel(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        seqspec.to_onnx(SPEC, tmp_path / "out", target="portable", quantize="int4")
    assert caught.value.code == "SEQ405"
