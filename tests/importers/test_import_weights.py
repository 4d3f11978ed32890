"""importers/weights.py: safetensors against the format's own library, and files that lie."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from seqspec.diagnostics import CompileError
from seqspec.importers.arrays import Arrays
from seqspec.importers.weights import Tensor, read_file, read_folder, write_file


def sample() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "a.weight": torch.randn(3, 5),
        "b.weight": torch.randn(7, 2).to(torch.bfloat16),
        "c.bias": torch.randn(1).half(),
        "d": torch.randn(4, 3, dtype=torch.float64),
        "empty": torch.randn(0, 3),
        "scalar": torch.tensor(2.5),
    }


def test_what_is_read_and_written_again_is_the_same(tmp_path: Path) -> None:
    save_file(sample(), tmp_path / "model.safetensors")
    write_file(tmp_path / "copy.safetensors", read_folder(tmp_path))
    copy = load_file(tmp_path / "copy.safetensors")
    assert copy.keys() == sample().keys()
    for name, tensor in sample().items():
        assert copy[name].dtype == tensor.dtype
        assert torch.equal(copy[name], tensor)


def test_transposed_and_split_in_every_type(tmp_path: Path) -> None:
    table = {str(t): torch.randn(6, 4).to(t) for t in (torch.float32, torch.float16, torch.bfloat16, torch.float64)}
    save_file(table, tmp_path / "model.safetensors")
    made: dict[str, Tensor] = {}
    for name, tensor in read_folder(tmp_path).items():
        first, second = tensor.transposed().split(2)
        made |= {f"{name}.first": first, f"{name}.second": second}
    write_file(tmp_path / "made.safetensors", made)
    found = load_file(tmp_path / "made.safetensors")
    for name, tensor in table.items():
        assert torch.equal(found[f"{name}.first"], tensor.T[:2])
        assert torch.equal(found[f"{name}.second"], tensor.T[2:])


def test_a_split_that_leaves_a_rest_is_an_error() -> None:
    with pytest.raises(CompileError, match="SEQ408"):
        Tensor("F32", (7, 2), lambda: np.zeros((7, 2), "f4")).split(3)


def test_the_bytes_do_not_depend_on_the_order(tmp_path: Path) -> None:
    save_file(sample(), tmp_path / "model.safetensors")
    tensors = read_folder(tmp_path)
    write_file(tmp_path / "one", tensors)
    write_file(tmp_path / "two", dict(reversed(tensors.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_every_tensor_starts_at_a_multiple_of_its_width(tmp_path: Path) -> None:
    save_file(sample(), tmp_path / "model.safetensors")
    write_file(tmp_path / "copy", read_folder(tmp_path))
    raw = (tmp_path / "copy").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    widths = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
    starts = [(8 + length + e["data_offsets"][0]) % widths[e["dtype"]] for n, e in header.items() if n[0] != "_"]
    assert starts == [0] * len(sample())
    with safe_open(tmp_path / "copy", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_shards(tmp_path: Path) -> None:
    tensors = sample()
    names = sorted(tensors)
    save_file({n: tensors[n] for n in names[:2]}, tmp_path / "one.safetensors")
    save_file({n: tensors[n] for n in names[2:]}, tmp_path / "two.safetensors")
    where = {n: "one.safetensors" if n in names[:2] else "two.safetensors" for n in names}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    assert read_folder(tmp_path).keys() == tensors.keys()


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", ".."])
def test_an_index_cannot_lead_outside(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(CompileError, match=r"SEQ409.*outside"):
        read_folder(tmp_path)


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch /tmp/never'\ntR.")
    with pytest.raises(CompileError, match="pickled") as caught:
        read_folder(tmp_path)
    assert caught.value.code == "SEQ409"


def test_no_weights_at_all(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="SEQ413"):
        read_folder(tmp_path)


def entry(shape: Any = (2, 2), offsets: Any = (0, 16), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    "header",
    [
        {"x": entry(offsets=(0, 17))},
        {"x": entry(offsets=(0, 12))},
        {"x": entry(offsets=(16, 0))},
        {"x": entry(offsets=(-16, 0))},
        {"x": entry(offsets=(0,))},
        {"x": entry(shape=(2, -2))},
        {"x": entry(shape=(True, 4))},
        {"x": entry(shape=None)},
        {"x": entry(shape=(1 << 62, 1 << 62))},
        {"x": entry(dtype=["F32"])},
        {"x": {}},
        {"x": 3},
        [],
        "text",
    ],
)
def test_headers_that_lie(tmp_path: Path, header: Any) -> None:
    text = json.dumps(header).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
    with pytest.raises(CompileError, match="SEQ409"):
        read_file(file)


@pytest.mark.parametrize("raw", [b"", b"\x02", struct.pack("<Q", 1 << 63) + b"{}", b"\xff" * 64, b"[" * 4096])
def test_files_that_are_none(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(raw)
    with pytest.raises(CompileError, match="SEQ409"):
        read_file(file)


def test_deep_nesting_in_a_header_is_an_error(tmp_path: Path) -> None:
    text = b"[" * 200_000
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(CompileError, match="SEQ409"):
        read_file(file)


def test_which_names_there_are_is_known_without_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file(sample(), tmp_path / "model.safetensors")
    arrays = Arrays(tmp_path / "model.safetensors")

    def read(_: Arrays, name: str) -> Any:
        raise AssertionError(f"{name} is read")

    monkeypatch.setattr(Arrays, "__getitem__", read)
    assert "a.weight" in arrays
    assert "e" not in arrays
