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
from seqspec.backends.onnx.manifest import manifest, of_files, package_version
from seqspec.backends.onnx.programs import Programs
from seqspec.backends.onnx.tensors import Tensors
from seqspec.diagnostics import CompileError
from seqspec.graph.ir import Graph
from seqspec.passes.last_logits import has_logits
from seqspec.passes.options import Options
from seqspec.passes.pipeline import fused, inference, parts, windowed
from seqspec.spec.tokenizer import TokenizerFile, contents

Weights = Mapping[str, Any]


def model(graph: Graph, weights: Weights | None = None, *, seed: int = 0, **options: Any) -> ir.Model:
    """One graph in one piece, as a model whose weights are read when it is written; for options see `Options`."""
    asked = _checked(graph, Options(**options))
    flat = inference(graph, asked.logits)
    whole = {"model": fused(flat, asked.target, asked.dtype, asked.quantize)}
    return _lower(flat, windowed(whole), Tensors(graph.root.params, weights, asked.dtype, seed))["model"]


def export(
    graph: Graph, weights: Weights | None = None, *, seed: int = 0, kept: str | None = None, **options: Any
) -> dict[str, ir.Model]:
    """A model for each file: `model`, or `encoder` and `decoder`, which share the tensors they have in common.

    `kept` is the dtype of the tensors where that is not the one the models compute in.
    """
    asked = _checked(graph, Options(**options))
    flat = inference(graph, asked.logits)
    tensors = Tensors(graph.root.params, weights, kept or asked.dtype, seed)
    return _lower(flat, windowed(_roles(flat, asked)), tensors)


def write_directory(
    graph: Graph,
    path: Path,
    weights: Weights | None = None,
    *,
    seed: int = 0,
    spec: str = "",
    inputs: Mapping[str, Any] | None = None,
    programs: Programs | None = None,
    tokenizer: TokenizerFile | None = None,
    check: Callable[[Path], Mapping[str, Any] | None] | None = None,
    **options: Any,
) -> None:
    """The files of `export` over one data file, `spec.yaml` and the manifest, in the place of `path` or not at all.

    `spec` is the text to keep; `inputs` says more about inputs by name, as plain data: a pad_id, a limit; `programs`
    may lay the files elsewhere, and add their own; `tokenizer` is copied.
    `check` sees the complete directory before it takes its place, and raises if that must not happen; what it returns
    joins the manifest.
    """
    asked = _checked(graph, Options(**options))
    refuse(path)
    refuse_if_too_large(graph, asked.dtype, path)
    tensors = Tensors(graph.root.params, weights, asked.dtype, seed, checked=True)
    flat = inference(graph, asked.logits)
    roles = _roles(flat, asked)
    known, others = inputs or {}, programs or Programs()
    written = roles if others.whole_caches else windowed(roles)
    places = {role: others.place(role, asked) for role in roles}
    described = manifest(graph, flat, roles, written, asked, places=places, inputs=known)
    if tokenizer is not None:
        described["tokenizer"] = tokenizer.to_json()
    files = others.files(flat, known, asked, in_place=described["in_place"])
    models = _lower(flat, written, tensors)
    with replacing(path) as folder:
        # settings of other programs are their users' to change
        hashed: dict[str, dict[str, Any] | None] = dict.fromkeys(files)
        hashed[others.data(asked)] = data.write_data(models.values(), folder / others.data(asked))
        for role, made in models.items():
            write(folder / places[role], ir.to_proto(made).SerializeToString(deterministic=True))
        for name, content in {**files, **contents(tokenizer), "spec.yaml": spec.encode()}.items():
            write(folder / name, content)
        seal(folder, described, hashed)
        found = check(folder) if check is not None else None
        if found:
            seal(folder, {**described, **found}, hashed)


def _checked(graph: Graph, asked: Options) -> Options:
    """The options, if this model can be made so."""
    if asked.quantize is not None and asked.target == "portable":
        text = "quantized weights are read by onnxruntime's kernel MatMulNBits, and `portable` has no kernel of its own"
        raise CompileError("SEQ405", text, "choose `cpu` or `cuda`, whose files run elsewhere too")
    if asked.logits == "last" and not has_logits(graph):
        raise CompileError("SEQ405", "there are no logits at every position, of which the last could be kept")
    return asked


def _roles(flat: Graph, asked: Options) -> dict[str, Graph]:
    return {role: fused(part, asked.target, asked.dtype, asked.quantize) for role, part in parts(flat).items()}


def _lower(flat: Graph, roles: Mapping[str, Graph], tensors: Tensors) -> dict[str, ir.Model]:
    named = {s.path: s for s in of_files(flat, roles).states}
    version = package_version("seqspec-compiler")
    return {role: lower(part, named, tensors, version) for role, part in roles.items()}
