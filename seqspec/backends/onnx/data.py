"""The external data file: every tensor of one or more models once, aligned, and piece by piece.

A piece fits a processor's cache: it is put into C order, hashed and written there, and no transpose is ever made whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy
import onnx_ir as ir

Array = numpy.ndarray[Any, Any]
NAME = "model.onnx.data"
# whole pages for what is worth mapping, cache lines for the rest
_PAGE, _LINE, _LARGE = 4096, 64, 1 << 16
_PIECE, _STRIP = 1 << 21, 16  # bytes; columns


def write_data(models: Iterable[ir.Model], path: Path) -> dict[str, Any]:
    """Moves the lazy weights of `models` to the file at `path`, beside which they lie; returns its size and SHA-256."""
    values = [v for model in models for v in model.graph.initializers.values()]
    lazy = [(v, v.const_value) for v in values if isinstance(v.const_value, ir.LazyTensor)]
    stored: dict[int, ir.ExternalTensor] = {}
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as stream, ThreadPoolExecutor(1) as hasher:
        file = _Hashed(stream, hasher)
        for value, tensor in lazy:
            if id(tensor) not in stored:
                stored[id(tensor)] = _store(file, tensor, path.name)
            there = stored[id(tensor)]
            value.const_value = ir.ExternalTensor(
                path.name, there.offset, there.length, there.dtype, shape=there.shape, name=str(value.name)
            )
        stream.flush()
        os.fsync(stream.fileno())
        return {"size": file.size, "sha256": file.digest()}


class _Hashed:
    """A stream that another thread hashes while it is written and while the next tensor is made."""

    def __init__(self, stream: BinaryIO, hasher: ThreadPoolExecutor) -> None:
        self.stream, self.hasher = stream, hasher
        self.size, self.buffers = 0, Buffers()
        self._hash = hashlib.sha256()
        self._hashing: Future[None] | None = None

    def write(self, content: Any) -> None:
        self._settle()
        self._hashing = self.hasher.submit(self._hash.update, content)
        self.stream.write(content)
        self.size += len(content)

    def digest(self) -> str:
        self._settle()
        return self._hash.hexdigest()

    def _settle(self) -> None:
        if self._hashing is not None:
            self._hashing.result()
            self._hashing = None


def _store(file: _Hashed, tensor: ir.LazyTensor, name: str) -> ir.ExternalTensor:
    array = tensor.numpy()
    alignment = _PAGE if array.nbytes >= _LARGE else _LINE
    file.write(bytes(-file.size % alignment))
    offset = file.size
    for piece in pieces(array, file.buffers):
        file.write(piece.view(numpy.uint8).data)
    return ir.ExternalTensor(
        name, offset, array.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape), name=str(tensor.name)
    )


class Buffers:
    """Two buffers in turn: one is filled while the other is hashed and written."""

    def __init__(self) -> None:
        self._made = [numpy.empty(_PIECE, numpy.uint8) for _ in range(2)]

    def take(self, shape: tuple[int, int], dtype: numpy.dtype[Any]) -> Array:
        """An array whose values are those of the last but one."""
        size = shape[0] * shape[1] * dtype.itemsize
        buffer = self._made.pop(0)
        self._made.append(buffer if buffer.size >= size else numpy.empty(size, numpy.uint8))
        return self._made[-1][:size].view(dtype).reshape(shape)


def pieces(array: Array, buffers: Buffers) -> Iterator[Array]:
    """The elements of `array` in C order, as flat arrays, each of which the next but one may overwrite."""
    if array.ndim != 2 or array.flags.c_contiguous:
        flat = numpy.ascontiguousarray(array).reshape(-1)
        step = _PIECE // array.itemsize
        yield from (flat[start : start + step] for start in range(0, flat.size, step))
        return
    count = max(_STRIP, _PIECE // (array.shape[1] * array.itemsize))
    for start in range(0, array.shape[0], count):
        rows = array[start : start + count]
        made = buffers.take(rows.shape, array.dtype)
        # a strip reads as many lines of a cache as lie in one place of it where rows are a power of two apart, and
        # takes a fifth of the time of NumPy's own copy of a large transpose
        for column in range(0, array.shape[1], _STRIP):
            made[:, column : column + _STRIP] = rows[:, column : column + _STRIP]
        yield made.reshape(-1)
