"""Initial weights, from `Param.init`, a seed and the parameter's name, without any framework; and checks of weights.

Every parameter has its own counter-based random stream, so that PyTorch and ONNX start with equal weights, and adding
a layer does not change the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from seqspec.diagnostics import CompileError, SeqspecError, arguments, quoted
from seqspec.graph.ir import Init, Param

_SHOWN = 8
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_SAFETENSORS = ("F64", "F32", "F16", "BF16")  # what a tensor that is not read yet calls its type
# the smallest numbers that round to infinity
_BEYOND = {
    "float32": (2 - 2**-24) * 2.0**127,
    "float16": (2 - 2**-11) * 2.0**15,
    "bfloat16": (2 - 2**-8) * 2.0**127,
}
_PIECE = 1 << 16  # numbers drawn at once, which fit a processor's cache
Weight = npt.NDArray[np.float32]


def initial(param: Param, seed: int = 0) -> Weight:
    """The initial values of a parameter that has its full name."""
    key = int.from_bytes(blake2b(f"{seed}:{param.name}".encode(), digest_size=16).digest(), "little")
    shape = tuple(size for size in param.shape if isinstance(size, int))
    if len(shape) != len(param.shape):
        raise SeqspecError("SEQ304", f"the parameter {param.name} has a size that is no number")
    return _draw(np.random.Generator(np.random.Philox(key=key)), param.init, shape)


class Drawn(Mapping[str, Weight]):
    """The initial values of each parameter by name, drawn when they are read."""

    def __init__(self, params: Iterable[Param], seed: int) -> None:
        self.params, self.seed = {p.name: p for p in params}, seed

    def __getitem__(self, name: str) -> Weight:
        return initial(self.params[name], self.seed)

    def __contains__(self, name: object) -> bool:  # a Mapping's own draws the values
        return name in self.params

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
            return _uniform(random, shape, np.float32(numbers[0]))
        case "normal":
            values = random.standard_normal(shape, np.float32)
            values *= np.float32(numbers[0])
            return values
        case "blocks":
            parts = [arg for arg in init.args if isinstance(arg, Init)]
            part = (shape[0] // len(parts), *shape[1:])
            return np.concatenate([_draw(random, inner, part) for inner in parts])


def _uniform(random: np.random.Generator, shape: tuple[int, ...], bound: np.float32) -> Weight:
    """`random.random(shape, np.float32) * 2 bound - bound`: the same numbers in two thirds of the time.

    Two come of 64 bits, 24 of each half; of an odd count the generator itself keeps the rest for its next draw.
    """
    if prod(shape) % 2:
        return random.random(shape, np.float32) * (2 * bound) - bound
    values = np.empty(shape, np.float32)
    flat = values.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        piece = flat[start : start + _PIECE]
        bits = random.bit_generator.random_raw(piece.size // 2).astype("<u8", copy=False).view("<u4")
        np.multiply(bits >> 8, 2 * bound / 2**24, out=piece, casting="unsafe", dtype=np.float32)
        piece -= bound
    return values


def check(params: tuple[Param, ...], weights: Mapping[str, Any]) -> None:
    """Raises one error that lists every weight that is missing, unknown, no array of floats or of another shape."""
    wanted = {p.name: p.shape for p in params}
    missing = [f"`{name}`" for name in wanted if name not in weights]
    unknown = [quoted(name) for name in weights if name not in wanted]
    typed, shaped = [], []
    for name, shape in wanted.items():
        if name not in weights:
            continue
        value = weights[name]
        what = _no_array(value)
        if what:
            typed.append(f"`{name}` is {what}")
        elif tuple(value.shape) != shape:
            shaped.append(f"`{name}` is {_show(value.shape)}, not {_show(shape)}")
    groups = [
        ("SEQ407", "missing", missing),
        ("SEQ410", "not in the model", unknown),
        ("SEQ418", f"not arrays of {', '.join(_FLOATS)}", typed),
        ("SEQ408", "shapes", shaped),
    ]
    found = [(code, f"{what}: {_listed(names)}") for code, what, names in groups if names]
    if found:
        raise CompileError(found[0][0], "the weights do not fit the model; " + "; ".join(text for _, text in found))


def check_values(params: tuple[Param, ...], weights: Mapping[str, Any], dtype: str = "float32") -> None:
    """Raises one error that lists every weight with numbers that a model in `dtype` cannot compute with."""
    found = [f"`{p.name}` holds {what}" for p in params if (what := no_number(as_numpy(weights[p.name]), dtype))]
    if found:
        raise CompileError("SEQ419", f"the weights are no numbers to compute with: {_listed(found)}")


def as_numpy(array: Any) -> npt.NDArray[Any]:
    """A NumPy, torch or other array-like as NumPy."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":  # NumPy has none; float32 holds it exactly
            array = array.float()
        return array.numpy()  # type: ignore[no-any-return]
    return np.asarray(array)


def _no_array(value: Any) -> str | None:
    """What a value is that is no array of floats in memory."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return arguments.given(value)
    name = str(getattr(value.dtype, "name", value.dtype)).removeprefix("torch.")
    if name not in (*_FLOATS, *_SAFETENSORS):
        return name
    if getattr(value, "is_meta", False):
        return "on the device `meta`, which holds no numbers"
    return "sparse" if getattr(value, "is_sparse", False) or getattr(value, "is_sparse_csr", False) else None


def no_number(array: npt.NDArray[Any], dtype: str) -> str | None:
    """What an array holds that is no number in `dtype`."""
    if not array.size:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        if array.dtype in ("float32", "float64") and array.flags.forc:
            # one quick pass says that nothing is wrong, as it does of nearly all weights
            flat = array.ravel("K")
            if float(np.dot(flat, flat)) < _BEYOND[dtype] ** 2 / 2:
                return None
        least, most = float(array.min()), float(array.max())  # NaN, where there is one, is both
    if np.isnan(least):
        return "NaN"
    furthest = max(-least, most)
    if np.isinf(furthest):
        return "infinity"
    return f"{furthest:.3g}, which is beyond {dtype}" if furthest >= _BEYOND[dtype] else None


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _show(shape: Any) -> str:
    return f"[{', '.join(map(str, shape))}]"
