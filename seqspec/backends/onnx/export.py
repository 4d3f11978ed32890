"""A graph as ONNX models, and as the directory that a Session opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from seqspec.backends.directory import refuse, replacing, seal, write
from seqspec.backends.memory import refuse_if_too_large
from seqspec.backends.onnx import data
from seqspec.backends.onnx.lower import lower
from seqspec.backends.onnx.manifest import manifest, package_version
from seqspec.backends.onnx.tensors import Tensors
from seqspec.backends.onnx.types import check_dtype
from seqspec.graph.ir import Graph
from seqspec.graph.signature import signature
from seqspec.passes.forms import Target
from seqspec.passes.pipeline import fused, inference, parts

Weights = Mapping[str, Any]


def model(
    graph: Graph, weights: Weights | None = None, *, target: Target = "cpu", dtype: str = "float32", seed: int = 0
) -> ir.Model:
    """One graph in one piece, as a model whose weights are read when it is written."""
    flat = inference(graph)
    return _lower(flat, {"model": fused(flat, target, dtype)}, _tensors(graph, weights, dtype, seed))["model"]


def export(
    graph: Graph, weights: Weights | None = None, *, target: Target = "cpu", dtype: str = "float32", seed: int = 0
) -> dict[str, ir.Model]:
    """A model for each file: `model`, or `encoder` and `decoder`, which share the tensors they have in common."""
    flat = inference(graph)
    return _lower(flat, _roles(flat, target, dtype), _tensors(graph, weights, dtype, seed))


def write_directory(
    graph: Graph,
    path: Path,
    weights: Weights | None = None,
    *,
    target: Target = "cpu",
    dtype: str = "float32",
    seed: int = 0,
    spec: str = "",
    inputs: Mapping[str, Any] | None = None,
    check: Callable[[Path], None] | None = None,
) -> None:
    """The files of `export` over one data file, `spec.yaml` and the manifest, in the place of `path` or not at all.

    `spec` is the text to keep; `inputs` says more about inputs by name, as plain data: a pad_id, a limit. `check` sees
    the complete directory before it takes its place, and raises if that must not happen.
    """
    check_dtype(dtype)
    refuse(path)
    refuse_if_too_large(graph, dtype, path)
    tensors = _tensors(graph, weights, dtype, seed)
    flat = inference(graph)
    roles = _roles(flat, target, dtype)
    models = _lower(flat, roles, tensors)
    described = manifest(graph, flat, roles, target=target, dtype=dtype, inputs=inputs or {})
    with replacing(path) as folder:
        known = {data.NAME: data.write_data(models.values(), folder)}
        for role, made in models.items():
            write(folder / f"{role}.onnx", ir.to_proto(made).SerializeToString(deterministic=True))
        write(folder / "spec.yaml", spec.encode())
        seal(folder, described, known)
        if check is not None:
            check(folder)


def _roles(flat: Graph, target: Target, dtype: str) -> dict[str, Graph]:
    return {role: fused(part, target, dtype) for role, part in parts(flat).items()}


def _lower(flat: Graph, roles: Mapping[str, Graph], tensors: Tensors) -> dict[str, ir.Model]:
    named = {s.path: s for s in signature(flat).states}
    version = package_version("seqspec-compiler")
    return {role: lower(part, named, tensors, version) for role, part in roles.items()}


def _tensors(graph: Graph, weights: Weights | None, dtype: str, seed: int) -> Tensors:
    check_dtype(dtype)
    return Tensors(graph.root.params, weights, dtype, seed)
