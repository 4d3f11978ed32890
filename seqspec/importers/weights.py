"""Weights on disk: safetensors files read tensor by tensor, and one written the same way.

The format (https://huggingface.co/docs/safetensors): eight bytes, the header's length; the header, a JSON map of name
to dtype, shape and byte range; the bytes. It is read here and not by its library because that reads no bfloat16 into
NumPy and writes only what is wholly in memory.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from seqspec.diagnostics import CompileError, quoted

Array = Any

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # NumPy has no bfloat16: its bits are kept
MAX_HEADER = 100_000_000  # bytes; the library's own limit


@dataclass(frozen=True)
class Tensor:
    """A tensor that is read when it is needed. `dtype` is its name in safetensors."""

    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], Array]

    def transposed(self) -> Tensor:
        """[A, B] -> [B, A]"""
        return Tensor(self.dtype, self.shape[::-1], lambda: self.read().T)

    def split(self, count: int) -> tuple[Tensor, ...]:
        """[count · A, …] -> count times [A, …]"""
        rows, rest = divmod(self.shape[0], count)
        if rest:
            raise CompileError("SEQ408", f"{count} equal parts are not in a tensor of shape {list(self.shape)}")
        return tuple(self._rows(n * rows, (n + 1) * rows) for n in range(count))

    def _rows(self, start: int, stop: int) -> Tensor:
        return Tensor(self.dtype, (stop - start, *self.shape[1:]), lambda: self.read()[start:stop])


_NO_WEIGHTS = "weights are safetensors files, as `model.safetensors`"


def read_folder(folder: Path) -> dict[str, Tensor]:
    """Every tensor of `model.safetensors`, or of the files that `model.safetensors.index.json` lists."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file():
        return read_file(whole)
    if not index.is_file():
        raise _nothing_to_read(folder)
    tensors: dict[str, Tensor] = {}
    for name in _shards(index):
        tensors |= read_file(folder / name)
    return tensors


def read_file(file: Path, *, together: bool = False) -> dict[str, Tensor]:
    """The tensors of one safetensors file, none of them read yet.

    Each is a mapping of its own part of the file, which ends with it. Or they share one mapping `together`: their
    values may be changed, which the file does not see.
    """
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            size = file.stat().st_size
            if not 2 <= length <= min(MAX_HEADER, size - 8):
                raise CompileError("SEQ409", f"{file.name} is not a safetensors file", _NO_WEIGHTS, str(file))
            header = json.loads(stream.read(length))
            whole = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY) if together else None
        header.pop("__metadata__", None)
        start = 8 + length
        return {name: _tensor(file, name, entry, start, size, whole) for name, entry in header.items()}
    except OSError as error:
        raise CompileError("SEQ409", f"{file.name} cannot be read: {error.strerror}", file=str(file)) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CompileError("SEQ409", f"{file.name} is not a sound safetensors file: {error}", file=str(file)) from None


def write_file(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """One safetensors file, one tensor in memory at a time; the same tensors give the same bytes."""
    # the widest dtypes first, so that every tensor starts at a multiple of its element's width
    names = sorted(tensors, key=lambda name: (-_width(tensors[name]), name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        begin, end = end, end + prod(tensors[name].shape) * _width(tensors[name])
        header[name] = {"dtype": tensors[name].dtype, "shape": tensors[name].shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            np.ascontiguousarray(tensors[name].read()).tofile(stream)
        os.fsync(stream.fileno())


def is_bare(name: str) -> bool:
    """Whether a file name in a downloaded index stays in the folder of that index."""
    return Path(name).name == name and name not in ("", "..")


def _tensor(file: Path, name: str, entry: Mapping[str, Any], start: int, size: int, whole: mmap.mmap | None) -> Tensor:
    dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)) or not begin <= end <= size - start:
        raise ValueError(f"{quoted(name)} lies outside it")
    if dtype in FLOATS and prod(shape) * np.dtype(FLOATS[dtype]).itemsize != end - begin:
        raise ValueError(f"{quoted(name)} has shape {list(shape)} and {end - begin} bytes")

    def read() -> Array:
        if begin == end:
            return np.empty(shape, FLOATS[dtype])
        if whole is not None:
            return np.ndarray(shape, FLOATS[dtype], whole, start + begin)
        before = (start + begin) % mmap.ALLOCATIONGRANULARITY  # where a mapping may start
        with file.open("rb") as stream:
            length, offset = before + end - begin, start + begin - before
            part = mmap.mmap(stream.fileno(), length, access=mmap.ACCESS_READ, offset=offset)
        return np.ndarray(shape, FLOATS[dtype], part, before)

    return Tensor(dtype, shape, read)


def _width(tensor: Tensor) -> int:
    return np.dtype(FLOATS[tensor.dtype]).itemsize


def _shards(index: Path) -> Iterable[str]:
    """The file names in an index, each once, all of them in the index's own folder."""
    try:
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        outside = [name for name in names if not is_bare(name)]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CompileError("SEQ409", f"{index.name} is not an index of weights: {error}", file=str(index)) from None
    if outside:
        raise CompileError("SEQ409", f"{index.name} leads outside its folder: {quoted(outside[0])}", file=str(index))
    return names


def _nothing_to_read(folder: Path) -> CompileError:
    pickled = sorted(p.name for p in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.pt*"))
    if pickled:
        hint = "save it once more with safetensors, on a machine where you trust it"
        message = f"{pickled[0]} is a pickled checkpoint; loading one runs its code, so it is never loaded"
        return CompileError("SEQ409", message, hint, str(folder / pickled[0]))
    return CompileError("SEQ413", "the folder holds no model.safetensors", file=str(folder))
