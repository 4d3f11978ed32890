"""Weights and constants, each stored once and made only when it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import onnx_ir as ir

from seqspec.backends.onnx.types import element, numpy_dtype
from seqspec.diagnostics import CompileError
from seqspec.graph.dims import Shape
from seqspec.graph.ir import Param

Make = Callable[..., Any]


@dataclass(frozen=True)
class Source:
    """Where parameters come from: a mapping by full path, or the seed they start from."""

    params: Mapping[str, Param]
    weights: Mapping[str, Any] | None
    seed: int

    def check(self) -> None:
        """Refuses weights that lack a parameter."""
        missing = [] if self.weights is None else [name for name in self.params if name not in self.weights]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise CompileError("SEQ407", f"The weights lack {', '.join(missing[:3])}{more}.")

    def load(self, name: str) -> numpy.ndarray[Any, Any]:
        """One parameter, as its source holds it."""
        param = self.params[name]
        if self.weights is None:
            from seqspec.backends import weights as initial_weights

            return numpy.asarray(initial_weights.initial(param, self.seed))
        array = as_numpy(self.weights[name])
        if array.shape != param.shape:
            raise CompileError("SEQ408", f"{name} has shape {list(array.shape)}; the model has {list(param.shape)}.")
        return array


class Tensors:
    """Tensors by what they hold. Two graphs over one `Tensors` share what they have in common."""

    def __init__(self, params: Iterable[Param], weights: Mapping[str, Any] | None, dtype: str, seed: int) -> None:
        self.source = Source({p.name: p for p in params}, weights, seed)
        self.source.check()
        self.dtype = dtype
        self._made: dict[tuple[str, ...], ir.LazyTensor] = {}

    def param(self, name: str) -> ir.LazyTensor:
        """A parameter as it is."""
        param = self.source.params[name]
        kind = element(param.dtype, self.dtype)
        return self._lazy((name,), name, param.shape, kind, lambda _, array: array)

    def derived(self, name: str, tag: str, shape: Shape, make: Make, sources: Sequence[str]) -> ir.LazyTensor:
        """`make(numpy, *parameters)`, in the element type of the first."""
        kind = element(self.source.params[sources[0]].dtype, self.dtype)
        return self._lazy((*sources, tag), name, shape, kind, make)

    def _lazy(self, key: tuple[str, ...], name: str, shape: Shape, kind: ir.DataType, make: Make) -> ir.LazyTensor:
        if key not in self._made:
            sources = key if len(key) == 1 else key[:-1]

            def load() -> ir.Tensor[Any]:
                made = make(numpy, *map(self.source.load, sources))
                array = numpy.ascontiguousarray(made, dtype=numpy_dtype(kind)).reshape(made.shape)
                if array.shape != shape:
                    raise AssertionError(f"{name} is {array.shape}, declared {shape}")
                return ir.Tensor(array, dtype=kind, name=name)

            self._made[key] = ir.LazyTensor(load, kind, ir.Shape(shape), name=name)  # type: ignore[arg-type]
        return self._made[key]


def as_numpy(array: Any) -> numpy.ndarray[Any, Any]:
    """A NumPy, torch or other array-like as NumPy."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":  # NumPy has none; float32 holds it exactly
            array = array.float()
        return array.numpy()  # type: ignore[no-any-return]
    return numpy.asarray(array)
