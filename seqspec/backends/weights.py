"""How weights start: from `Param.init`, a seed and the parameter's own name, with no framework involved.

Every parameter has its own counter-based stream, so that PyTorch and ONNX start equal and a layer added at the end
moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from seqspec.diagnostics import CompileError, SeqspecError
from seqspec.graph.ir import Init, Param

_SHOWN = 8
Weight = npt.NDArray[np.float32]


def initial(param: Param, seed: int = 0) -> Weight:
    """The values a parameter, under its full name, starts with."""
    key = int.from_bytes(blake2b(f"{seed}:{param.name}".encode(), digest_size=16).digest(), "little")
    shape = tuple(size for size in param.shape if isinstance(size, int))
    if len(shape) != len(param.shape):
        raise SeqspecError("SEQ304", f"the parameter {param.name} has a size that is no number")
    return _draw(np.random.Generator(np.random.Philox(key=key)), param.init, shape)


class Drawn(Mapping[str, Weight]):
    """What `seed` draws for each parameter, at the moment it is asked for."""

    def __init__(self, params: Iterable[Param], seed: int) -> None:
        self.params, self.seed = {p.name: p for p in params}, seed

    def __getitem__(self, name: str) -> Weight:
        return initial(self.params[name], self.seed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.params)

    def __len__(self) -> int:
        return len(self.params)


def _draw(random: np.random.Generator, init: Init, shape: tuple[int, ...]) -> Weight:
    numbers = [arg for arg in init.args if not isinstance(arg, Init)]
    match init.kind:
        case "zeros" | "ones":
            return np.full(shape, init.kind == "ones", np.float32)
        case "constant":
            return np.full(shape, numbers[0], np.float32)
        case "uniform":
            bound = np.float32(numbers[0])
            values = random.random(shape, np.float32)
            values *= 2 * bound
            values -= bound
            return values
        case "normal":
            values = random.standard_normal(shape, np.float32)
            values *= np.float32(numbers[0])
            return values
        case "blocks":
            parts = [arg for arg in init.args if isinstance(arg, Init)]
            part = (shape[0] // len(parts), *shape[1:])
            return np.concatenate([_draw(random, inner, part) for inner in parts])


def check(params: tuple[Param, ...], weights: Mapping[str, Any]) -> None:
    """Raises one error that lists every weight that is missing, unknown or of another shape."""
    wanted = {p.name: p.shape for p in params}
    missing = [f"`{name}`" for name in wanted if name not in weights]
    unknown = [f"`{name}`" for name in weights if name not in wanted]
    shaped = [
        f"`{name}` is {_show(weights[name].shape)}, not {_show(shape)}"
        for name, shape in wanted.items()
        if name in weights and tuple(weights[name].shape) != shape
    ]
    groups = [("SEQ407", "missing", missing), ("SEQ410", "not in the model", unknown), ("SEQ408", "shapes", shaped)]
    found = [(code, f"{what}: {_listed(names)}") for code, what, names in groups if names]
    if found:
        raise CompileError(found[0][0], "the weights do not fit the model; " + "; ".join(text for _, text in found))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _show(shape: Any) -> str:
    return f"[{', '.join(map(str, shape))}]"
