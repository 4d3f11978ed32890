"""Weights and derived tensors, each stored once and computed only when it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import onnx_ir as ir

from seqspec.backends.onnx.types import element, numpy_dtype
from seqspec.backends.weights import as_numpy, check, check_values, initial, no_number
from seqspec.graph.dims import Shape
from seqspec.graph.ir import Param

Array = numpy.ndarray[Any, Any]
Make = Callable[..., Any]


@dataclass(frozen=True)
class Source:
    """Where parameters come from: a mapping by full path, or a seed."""

    params: Mapping[str, Param]
    weights: Mapping[str, Any] | None
    seed: int
    checked: str | None = None
    """The dtype in which weights must be numbers to compute with."""

    def load(self, name: str) -> Array:
        """One parameter, as its source holds it. CompileError (SEQ419) if it must hold numbers and does not."""
        if self.weights is None:
            return initial(self.params[name], self.seed)
        array = as_numpy(self.weights[name])
        if self.checked is not None and no_number(array, self.checked):
            check_values(tuple(self.params.values()), self.weights, self.checked)  # names all that are wrong
        return array


class Tensors:
    """Tensors by content. Graphs that use the same `Tensors` share equal ones.

    `checked`: weights are checked when they are read, so that each is read only once.
    """

    def __init__(
        self,
        params: Sequence[Param],
        weights: Mapping[str, Any] | None,
        dtype: str,
        seed: int,
        *,
        checked: bool = False,
    ) -> None:
        self.source = Source({p.name: p for p in params}, weights, seed, dtype if checked else None)
        if weights is not None:
            check(tuple(params), weights)
        self.dtype = dtype
        self._made: dict[tuple[str, ...], ir.LazyTensor] = {}

    def param(self, name: str) -> ir.LazyTensor:
        """A parameter as it is."""
        param = self.source.params[name]
        kind = element(param.dtype, self.dtype)
        return self._lazy(("", name), name, param.shape, kind, lambda _, array: array, [name])

    def derived(
        self, name: str, tag: str, shape: Shape, kind: ir.DataType, make: Make, sources: Sequence[str]
    ) -> ir.LazyTensor:
        """`make(numpy, *parameters)`"""
        return self._lazy((tag, *sources), name, shape, kind, make, sources)

    def _lazy(
        self, key: tuple[str, ...], name: str, shape: Shape, kind: ir.DataType, make: Make, sources: Sequence[str]
    ) -> ir.LazyTensor:
        if key not in self._made:

            def load() -> ir.Tensor[Any]:
                made = make(numpy, *map(self.source.load, sources))
                array = numpy.asarray(made).astype(numpy_dtype(kind), copy=False)
                if array.shape != shape:
                    raise AssertionError(f"{name} is {array.shape}, declared {shape}")
                return ir.Tensor(array, dtype=kind, name=name)

            self._made[key] = ir.LazyTensor(load, kind, ir.Shape(shape), name=name)  # type: ignore[arg-type]
        return self._made[key]
