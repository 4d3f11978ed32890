"""ONNX files from graphs, directly: no tracing, opset 23, one external data file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from seqspec.backends.onnx.lower import lower
from seqspec.backends.onnx.tensors import Tensors
from seqspec.backends.onnx.types import check_dtype
from seqspec.graph.ir import Graph
from seqspec.passes.pipeline import Target, whole


def model(
    graph: Graph,
    weights: Mapping[str, Any] | None = None,
    *,
    target: Target = "cpu",
    dtype: str = "float32",
    seed: int = 0,
) -> ir.Model:
    """One graph, made ready for `target`, as a model whose weights are read when it is written."""
    check_dtype(dtype)
    tensors = Tensors(graph.root.params, weights, dtype, seed)
    return lower(whole(graph, target), tensors, "0.1.0")
