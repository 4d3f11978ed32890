"""Runs one op through all its faces: a graph of a single node, real arrays, and the NumPy reference as the judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
import torch

from seqspec.backends import onnx as onnx_backend
from seqspec.backends.torch import module
from seqspec.graph.builder import Builder
from seqspec.graph.dims import BATCH, PAST, TIME, Shape, dim, evaluate
from seqspec.graph.interpret import interpret
from seqspec.graph.ir import Graph, Region, Value
from seqspec.graph.signature import signature
from seqspec.graph.types import DType
from seqspec.ops.base import Op
from seqspec.ops.cache import Append

Array = Any
Results = list[Array | None]


@dataclass(frozen=True)
class Input:
    """An input of the node: its symbolic type, and the array of this run; `array` None is a None at run time."""

    shape: Shape
    array: Array | None
    dtype: DType = "float"

    @property
    def optional(self) -> bool:
        return self.dtype == "bool" or self.array is None


@dataclass(frozen=True)
class Row:
    """An op and its inputs. `pasts` follow `op.states`, None being no past.

    `onnx` is False where a file cannot say this. `one_row`: PyTorch gives one row that stands for the whole batch.
    """

    name: str
    op: Op
    inputs: tuple[Input | None, ...]
    sizes: Mapping[str, int]
    pasts: tuple[Array | None, ...] = ()
    onnx: bool = True
    one_row: bool = False

    def __str__(self) -> str:
        return f"{type(self.op).__name__}-{self.name}"

    @property
    def region(self) -> Region:
        """The region of one node. Equal rows of it are equal, not identical."""
        builder = Builder("OneOp")
        values = [
            None if x is None else builder.input(f"input_{n}", x.shape, x.dtype, optional=x.optional)
            for n, x in enumerate(self.inputs)
        ]
        hint = " ".join(f"output_{n}" for n in range(len(self.op.infer(*values))))
        outputs = builder.add_many(self.op, *values, name="op", hint=hint)
        if self.has_cache:
            x = builder.input("cached", _CACHED)
            outputs += (builder.add(Append("cache"), x, name="attention", hint="cache"),)
        return builder.done(*outputs)

    @property
    def has_cache(self) -> bool:
        """Whether an attention's cache stands beside it, for the length of the past to be read off."""
        return bool(getattr(self.op, "looks_back", False))

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The op's own."""
        return self.region.outputs[: -1 if self.has_cache else None]

    @property
    def given(self) -> Iterator[tuple[str, Input]]:
        yield from ((f"input_{n}", x) for n, x in enumerate(self.inputs) if x is not None)
        if self.has_cache:
            yield "cached", Input(_CACHED, np.zeros([evaluate(size, self.sizes) for size in _CACHED]))

    @property
    def past(self) -> dict[str, Array]:
        """The pasts that are there, by path."""
        cached = {"attention.cache": np.zeros((self.sizes[BATCH], 1, self.sizes[PAST], 1))} if self.has_cache else {}
        if not self.sizes.get(PAST):
            cached = {}
        own = [s.name for s in self.region.states if s.name.startswith("op.")]
        return cached | {n: p for n, p in zip(own, self.pasts, strict=bool(self.pasts)) if p is not None}

    def weights(self) -> dict[str, Array]:
        """Random weights under the region's names."""
        rng = np.random.default_rng(7)
        return {p.name: single(rng.normal(size=p.shape)) for p in self.region.params}


_CACHED: Shape = (dim(BATCH), 1, dim(TIME), 1)


def single(array: Array) -> Array:
    """float64 numbers that float32 holds exactly, so that all faces read the same."""
    return np.asarray(array, np.float32).astype(np.float64)


def reference(row: Row) -> Results:
    """Every output by the NumPy face."""
    outputs, _ = interpret(row.region, np, row.weights(), [x.array for _, x in row.given], row.past)
    return list(outputs[: len(row.outputs)])


def shapes(row: Row) -> list[tuple[int, ...]]:
    """What `infer` says of every output, at the sizes of this run."""
    return [tuple(evaluate(size, row.sizes) for size in v.shape) for v in row.outputs]


def torch_module(row: Row, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    """The emitted file's model with the row's weights, in inference mode."""
    return module(Graph(row.region), row.weights()).to(dtype).eval()


def torch_arguments(row: Row, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """The keyword arguments of a call, the pasts as `state`."""
    arguments: dict[str, Any] = {name: tensor(x.array, dtype) for name, x in row.given}
    carried = signature(Graph(row.region)).states
    state = {s.past: tensor(row.past[s.path], dtype) for s in carried if s.path in row.past}
    return arguments | ({"state": state} if state else {})


def tensor(array: Array | None, dtype: torch.dtype) -> torch.Tensor | None:
    made = None if array is None else torch.tensor(array)
    return made.to(dtype) if made is not None and made.is_floating_point() else made


def run_torch(row: Row, dtype: torch.dtype = torch.float64) -> Results:
    """Every output of the emitted file."""
    with torch.no_grad():
        out = torch_module(row, dtype)(**torch_arguments(row, dtype))
    values = [getattr(out, f"output_{n}") for n in range(len(row.outputs))]
    values = [None if v is None else v.detach() for v in values]  # a view of a parameter is none of its own
    return [None if v is None else v.double().numpy() if v.is_floating_point() else v.numpy() for v in values]


def run_onnx(row: Row, optimise: bool) -> Results:
    """Every output of the file in onnxruntime: float32, a mask always there, an empty past where there is none."""
    session = onnx_session(row, optimise)
    feeds = _feeds(row)
    names = [f"output_{n}" for n in range(len(row.outputs))]
    return list(session.run(names, {i.name: feeds[i.name] for i in session.get_inputs()}))


def onnx_session(row: Row, optimise: bool) -> onnxruntime.InferenceSession:
    model = onnx_backend.model(Graph(row.region), row.weights(), target="portable")
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    proto = onnx_ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])


def _feeds(row: Row) -> dict[str, Array]:
    feeds = {}
    for name, x in row.given:
        # nothing is padded where a mask is not there
        array = np.ones([evaluate(size, row.sizes) for size in x.shape], np.int64) if x.array is None else x.array
        feeds[name] = array.astype(_IN_FILES[x.dtype])
    for state in signature(Graph(row.region)).states:
        array = row.past.get(state.path, np.zeros([evaluate(size, row.sizes) for size in state.shape]))
        feeds[state.past] = array.astype(_IN_FILES[state.dtype])
    return feeds


_IN_FILES: dict[DType, type] = {"float": np.float32, "float32": np.float32, "bool": bool, "int64": np.int64}


def assert_close(got: Array | None, want: Array | None, tolerance: float) -> None:
    """Equal shapes, no NaN, and within `tolerance` of the largest value; what is not a float is equal."""
    if want is None or got is None:
        assert got is want
        return
    assert got.shape == want.shape
    if want.dtype.kind in "bi":
        np.testing.assert_array_equal(got, want)
        return
    error = np.abs(got - want).max(initial=0.0)
    assert error <= tolerance * np.abs(want).max(initial=0.0), f"{error} apart"
