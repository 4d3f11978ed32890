"""The tensors of a safetensors file as NumPy arrays, each read on access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqspec.diagnostics import CompileError
from seqspec.importers.weights import FLOATS, Array, Tensor, read_file


class Arrays(Mapping[str, Array]):
    """{name: array}. bfloat16, which NumPy lacks, comes as float32, which holds it exactly.

    `together` is that of `read_file`.
    """

    def __init__(self, file: Path, *, together: bool = False) -> None:
        self.file, self.tensors = file, read_file(file, together=together)

    def __getitem__(self, name: str) -> Array:
        tensor = self.tensors[name]
        if tensor.dtype not in FLOATS:
            text = f"`{name}` holds {tensor.dtype}; weights are {', '.join(FLOATS)}"
            raise CompileError("SEQ409", text, file=str(self.file))
        return widened(tensor)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __contains__(self, name: object) -> bool:  # that of Mapping would read the tensor
        return name in self.tensors

    def __len__(self) -> int:
        return len(self.tensors)


def widened(tensor: Tensor) -> Any:
    """The values; the bits of a bfloat16 are the upper half of a float32's."""
    array = tensor.read()
    return (array.astype(np.uint32) << 16).view(np.float32) if tensor.dtype == "BF16" else array
