"""`--target cuda` without a GPU: onnxruntime's own CUDA provider says which nodes it has kernels for.

It is given stubs in the place of CUDA, and makes sessions of every example; nothing is run. What it leaves to the CPU
may be shapes, which it keeps there on purpose, and what is listed here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
from cuda_stub.build import build
from onnx import TensorProto, helper
from shrink import shrink

import seqspec

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
PROVIDER = Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime_providers_cuda.so"
# int32, int64, bool
WHOLE = {6, 7, 9}
# ops of more than shapes that the provider has no kernel for, and why that is small
LISTED = {
    "ArgMax": "of integers: where a row's real positions begin or end",
    "Pad": "of integers: the positions of a rope whose scaling depends on the length",
}


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stubs."""
    if not PROVIDER.is_file():
        pytest.skip("this onnxruntime has no CUDA provider: onnxruntime-gpu has")
    missing = [tool for tool in ("gcc", "nm", "readelf") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the stubs of CUDA need {' and '.join(missing)}")
    folder = tmp_path_factory.mktemp("stubs")
    build(PROVIDER, folder)
    return folder


def placed(libraries: Path, files: list[Path]) -> list[Any]:
    place = Path(__file__).parent / "cuda_stub" / "place.py"
    environment = os.environ | {"LD_LIBRARY_PATH": str(libraries)}
    asked = json.dumps(list(map(str, files)))
    done = subprocess.run([sys.executable, place], input=asked, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return list(json.loads(done.stdout.splitlines()[-1]))


def compiled(path: Path, folder: Path, **options: Any) -> Iterator[Path]:
    made = seqspec.to_onnx(shrink(seqspec.load(path)), folder, target="cuda", verify=False, **options)
    yield from sorted(made.glob("*.onnx"))


def left(found: dict[str, Any]) -> Iterator[str]:
    """The ops on the CPU that compute more than shapes."""
    for op, tensors in found["cpu"]:
        if not tensors or any(kind not in WHOLE or rank > 1 for kind, rank in tensors):
            yield op


def test_every_example_is_computed_on_the_gpu(libraries: Path, tmp_path: Path) -> None:
    files = {file: path.stem for path in EXAMPLES for file in compiled(path, tmp_path / path.stem, dtype="float16")}
    seen = set()
    for (file, name), found in zip(files.items(), placed(libraries, list(files)), strict=True):
        assert found["providers"][0] == "CUDAExecutionProvider", file
        assert found["cuda"] > 0, file
        for op in left(found):
            assert op in LISTED, (file, name, op)
            seen.add(op)
    assert seen == set(LISTED)


def test_kernels_by_dtype(libraries: Path, tmp_path: Path) -> None:
    """GroupQueryAttention has no float32 there, and is not asked for it; maps in few bits are the kernel's."""
    asked: dict[str, tuple[int, dict[str, Any]]] = {
        "float32": (0, {}),
        "float16": (4, {}),
        "bfloat16": (4, {}),
        "int8": (4, {"dtype": "float16", "quantize": "int8"}),
        "int4": (4, {"dtype": "float16", "quantize": "int4"}),
    }
    model, files = ROOT / "examples" / "tiny-llama.yaml", []
    for name, (kernels, options) in asked.items():
        options = options or {"dtype": name}
        folder = seqspec.to_onnx(model, tmp_path / name, target="cuda", verify=False, **options)
        forms = json.loads((folder / "seqspec.json").read_text())["forms"]
        assert sum(f["count"] for f in forms if f["form"].endswith("GroupQueryAttention")) == kernels
        files.append(folder / "model.onnx")
    for name, found in zip(asked, placed(libraries, files), strict=True):
        assert list(left(found)) == [], name


@pytest.mark.parametrize("name", ["elman-language-model", "gru-forecast", "lstm-sentiment"])
def test_no_recurrent_layer_needs_a_kernel_in_bfloat16(name: str, libraries: Path, tmp_path: Path) -> None:
    files = list(compiled(ROOT / "examples" / f"{name}.yaml", tmp_path / "out", dtype="bfloat16"))
    for found in placed(libraries, files):
        assert set(left(found)) <= set(LISTED)
        assert found["cuda"] > 0


def test_windows_of_the_past_are_kept_on_the_gpu(libraries: Path, tmp_path: Path) -> None:
    """In float32, where no kernel keeps the cache. How much of it is dropped is a number, which the CPU reads."""
    files = list(compiled(ROOT / "examples" / "hybrid-window.yaml", tmp_path / "out", dtype="float32"))
    assert "past_window_" in (tmp_path / "out" / "seqspec.json").read_text()
    (found,) = placed(libraries, files)
    assert list(left(found)) == []
    assert found["cuda"] > 0


def test_a_kernel_that_is_not_there_is_seen(libraries: Path, tmp_path: Path) -> None:
    """Elu of this opset is the CPU's: the check would find it."""
    nodes = [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("Elu", ["y"], ["z"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "z")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), tmp_path / "x.onnx")
    (found,) = placed(libraries, [tmp_path / "x.onnx"])
    assert list(left(found)) == ["Elu"]
