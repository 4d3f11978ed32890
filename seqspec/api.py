"""The pipeline, one function per step. Each takes a Model, or a spec as a path, a text or a mapping.

A spec that is wrong raises SpecError with every finding; a step that fails raises CompileError. What a step needs is
imported inside it, so that no step pays for another and a missing package is an error only where it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seqspec.checking import check, examine, load, placing
from seqspec.diagnostics import CompileError, arguments
from seqspec.diagnostics.extras import extra
from seqspec.document import Document
from seqspec.graph.ir import Graph
from seqspec.passes.options import Options
from seqspec.spec.model import Model
from seqspec.spec.tokenizer import beside, kept

if TYPE_CHECKING:
    from torch import nn

    from seqspec.passes.forms import Target
    from seqspec.passes.options import Logits, Quantize
    from seqspec.runtime.compare import Told, Verification

Spec = Model | str | os.PathLike[str] | Mapping[str, Any]
Weights = Mapping[str, Any] | str | os.PathLike[str]
"""Float arrays or tensors by parameter name, shaped as torch has them, or the path of a safetensors file of them."""

__all__ = [
    "build",
    "check",
    "import_model",
    "load",
    "resolved",
    "to_onnx",
    "to_source",
    "to_torch",
    "verify",
    "write_source",
    "write_torch",
]


class _Read(NamedTuple):
    """A spec without an error: its model, its graph, and where its parts are written."""

    model: Model
    graph: Graph
    document: Document


def build(spec: Spec) -> Graph:
    """The graph of ops, whose shapes are symbolic in `batch_size`, `sequence_length` and the like. Needs no torch."""
    return _read(spec).graph


def resolved(spec: Spec) -> str:
    """The spec as YAML with every default filled in. It compiles to the same bytes as the spec itself."""
    from seqspec.spec.dump import resolved as dumped

    return dumped(load(spec))


def to_source(spec: Spec) -> str:
    """The text of one Python file with the model as nn.Modules. It imports only torch."""
    from seqspec.backends.source import source

    return source(build(spec))


def to_torch(spec: Spec, *, weights: Weights | None = None, seed: int = 0) -> nn.Module:
    """The model as an nn.Module in float32 on the CPU, with the given weights or those that `seed` draws.

    It is in training mode, like every new module; `.eval()` switches dropout off. The weights of a mapping are copied.
    A file is mapped into memory, as safetensors' own loader does: training does not change it, and it may be replaced,
    but not be written into, while the module lives. CompileError where the weights do not fit the parameters (SEQ407 to
    SEQ410, SEQ418, SEQ419) or the model does not fit into memory (SEQ402).
    """
    arguments.whole(seed, "seed")
    graph = build(spec)
    with extra("torch"):
        from seqspec.backends.memory import refuse_if_too_large_at_once
        from seqspec.backends.torch import module

        refuse_if_too_large_at_once(graph)
        given = _weights(weights, together=True)
        return module(graph, given, seed, copy=given is weights)


def write_source(spec: Spec, path: str | os.PathLike[str]) -> Path:
    """Writes the text of `to_source` to the file at `path`, whole or not at all, and returns the path.

    An earlier emitted file is replaced; anything else at `path` is refused (SEQ403).
    """
    from seqspec.backends.directory import replace_file
    from seqspec.backends.source.file import is_ours

    place = arguments.path(path)
    replace_file(place, to_source(spec).encode(), is_ours)
    return place


def write_torch(
    spec: Spec,
    path: str | os.PathLike[str],
    *,
    weights: Weights | None = None,
    seed: int = 0,
    verify: bool = True,
    told: Told | None = None,
) -> Path:
    """Writes the folder `path` with `model.py`, `model.safetensors` (float32) and `spec.yaml`, and returns the path.

    With `verify`, the model is first compared with the NumPy reference in float64, and nothing is written unless they
    agree (SEQ406); `told` is called with the Verification. An earlier output is replaced, anything else at `path` is
    refused (SEQ403).
    """
    place = _output(path, seed, verify, told)
    model, graph, _ = _read(spec)
    with extra("torch"):
        from seqspec.runtime.torch_folder import require, write_folder

        check = partial(require, told=told) if verify else None
        write_folder(
            graph, place, _weights(weights), seed=seed, spec=resolved(beside(model)), tokenizer=kept(model), check=check
        )
    return place


def to_onnx(
    spec: Spec,
    path: str | os.PathLike[str],
    *,
    weights: Weights | None = None,
    target: Target = "cpu",
    dtype: str = "float32",
    logits: Logits = "all",
    quantize: Quantize | None = None,
    genai: bool = False,
    transformers_js: bool = False,
    eos_id: int | None = None,
    seed: int = 0,
    verify: bool = True,
    told: Told | None = None,
) -> Path:
    """Writes the folder `path` with ONNX files and a manifest, which a Session opens, and returns the path.

    `target` is `cpu`, `cuda` or `portable`, `dtype` float32, float16 or bfloat16. `logits="last"` keeps only the logits
    of each row's last real token, [B, 1, V], which is all that generation reads. `quantize` stores the weights of
    linear maps in `int8` or `int4`; the manifest says under `error` what that costs. With `genai` onnxruntime-genai
    can load the folder too, with `transformers_js` Transformers.js; these end a text at `eos_id`.

    With `verify`, the files are first compared with PyTorch in float64, and nothing is written unless they agree
    (SEQ406); `told` is called with the Verification. An earlier output is replaced, anything else at `path` is refused
    (SEQ403).
    """
    place = _output(path, seed, verify, told)
    arguments.flag(genai, "genai")
    arguments.flag(transformers_js, "transformers_js")
    if eos_id is not None:
        arguments.whole(eos_id, "eos_id")
    asked = _options(target, dtype, logits, quantize)
    model, graph, document = _read(spec)
    with extra("onnx"), placing(document):
        from seqspec.backends.onnx import Programs, write_directory
        from seqspec.backends.weights import Drawn
        from seqspec.runtime.facts import facts
        from seqspec.runtime.verify import require

        given = _weights(weights)
        known = Drawn(graph.root.params, seed) if given is None else given
        tokenizer = kept(model)
        if eos_id is None and tokenizer is not None:
            eos_id = tokenizer.eos_id
        write_directory(
            graph,
            place,
            given,
            **asked.to_json(),
            seed=seed,
            spec=resolved(beside(model)),
            tokenizer=tokenizer,
            inputs={name: fact.to_json() for name, fact in facts(graph).items()},
            programs=Programs(genai, transformers_js, eos_id),
            check=partial(require, weights=known, told=told) if verify else None,
        )
    return place


def verify(path: str | os.PathLike[str], *, seed: int = 0) -> Verification:
    """Compares a compiled folder with an independent implementation, on random sequences drawn from `seed`.

    ONNX files are compared with PyTorch in float64, an emitted PyTorch file with the NumPy reference. The Verification
    has every difference with its limit, relative to the largest value of its output, and `passed`. A folder that is
    missing or damaged is a RuntimeFault (SEQ507, SEQ508, SEQ516).
    """
    from seqspec.runtime.manifest import read

    folder = arguments.path(path)
    arguments.whole(seed, "seed")
    if read(folder).backend == "torch":
        with extra("torch"):
            from seqspec.runtime.torch_folder import verify as of_torch

            return of_torch(folder, seed=seed)
    with extra("onnx"):
        from seqspec.runtime.verify import verify as of_onnx

        return of_onnx(folder, seed=seed)


def import_model(directory: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """Writes a Hugging Face directory as `spec.yaml` and `model.safetensors` into the folder `path`, and returns it.

    CompileError for a family or setting that cannot be expressed (SEQ412), or for missing files (SEQ413).
    """
    source, place = arguments.path(directory, "directory"), arguments.path(path)
    with extra("onnx"):
        from seqspec.importers import import_model as imported

        return imported(source, place)


def _output(path: str | os.PathLike[str], seed: int, verify: bool, told: Told | None) -> Path:
    """The path of an output. Checks the arguments that all outputs take."""
    arguments.whole(seed, "seed")
    arguments.flag(verify, "verify")
    if told is not None and not callable(told):
        raise arguments.refused("told", "a function, or nothing", told)
    return arguments.path(path)


def _options(target: Target, dtype: str, logits: Logits, quantize: Quantize | None) -> Options:
    """The options of an ONNX output, for what onnxruntime can run."""
    asked = Options(target, dtype, logits, quantize)
    if (asked.target, asked.dtype) == ("cpu", "bfloat16"):
        text = "onnxruntime computes no matrix product in bfloat16 on the CPU"
        raise CompileError("SEQ411", text, "choose float16, or another target")
    return asked


def _read(spec: Spec) -> _Read:
    found = examine(spec)
    found.report.raise_errors(found.sources)
    assert found.model is not None
    assert found.graph is not None
    assert found.document is not None
    return _Read(found.model, found.graph, found.document)


def _weights(weights: Weights | None, *, together: bool = False) -> Mapping[str, Any] | None:
    """A mapping as it is; for a file, a mapping that reads each tensor when it is asked for."""
    if weights is None or isinstance(weights, Mapping):
        return weights
    if not isinstance(weights, str | os.PathLike):
        raise arguments.refused("weights", "arrays by parameter name, or the path of a safetensors file", weights)
    from seqspec.importers.arrays import Arrays

    return Arrays(arguments.path(weights, "weights"), together=together)
