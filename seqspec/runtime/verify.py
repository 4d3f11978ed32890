"""Verification: compares a compiled folder with PyTorch, on random sequences passed in every way a caller may."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from seqspec.backends.memory import free_memory
from seqspec.backends.onnx import write_directory
from seqspec.backends.weights import as_numpy
from seqspec.build import build
from seqspec.checking import load
from seqspec.diagnostics import CompileError, RuntimeFault
from seqspec.graph.ir import Graph
from seqspec.graph.signature import signature
from seqspec.passes.pipeline import rounded
from seqspec.runtime import providers
from seqspec.runtime.cases import Cases
from seqspec.runtime.compare import REPORT, Told, Verification, compare, judgement, rounding
from seqspec.runtime.facts import facts
from seqspec.runtime.judges import LastLogits, OnnxRunner, ReferenceRunner, Runner, TorchRunner
from seqspec.runtime.manifest import Manifest, described, read
from seqspec.runtime.recover import recover, stored
from seqspec.runtime.session import Session
from seqspec.runtime.state import Array
from seqspec.runtime.truncate import truncated
from seqspec.spec.model import Model

LARGEST = 1 << 28
"""Models with more parameters than this are checked with each distinct layer once, and tensor by tensor."""
_BYTES = 28  # per parameter: in the file, in onnxruntime, and in PyTorch while loading, in float32 and in float64
_DEEP = 8
_ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_AMPLIFIED = 4
_NEARBY = 8
"""How many nearby models measure the error of float32, if the model itself is not enough."""
_EIGHT_BITS = 0.1
"""The relative error allowed because MatMulNBits rounds its inputs to 8 bits, for all layers together."""


def tolerance(depth: int, dtype: str) -> float:
    """2e-6 of the largest value in float32, or 5e-6 above eight layers; 16 rounding errors in half precision."""
    if dtype == "float32":
        return 2e-6 if depth <= _DEEP else 5e-6
    return 16 * _ROUNDING[dtype]


def verify(path: str | os.PathLike[str], *, weights: Mapping[str, Any] | None = None, seed: int = 0) -> Verification:
    """The folder against the model of the spec in it, on sequences drawn from `seed`.

    The model's weights are `weights`, or those recovered from the files. The limit is `tolerance`. If weights amplify
    rounding errors, it is four times PyTorch's own error in float32, measured on this model and, if need be, on a few
    whose weights differ from it by one unit in the last place.
    """
    return _verified(read(Path(path)), weights, seed)


def _verified(manifest: Manifest, weights: Mapping[str, Any] | None, seed: int = 0) -> Verification:
    model = load(manifest.folder / "spec.yaml")
    graph = build(model)
    if sum(prod(_shape(p.shape)) for p in graph.root.params) <= LARGEST:
        known = recover(manifest, graph) if weights is None else weights
        return _compared(manifest.folder, manifest, model, graph, known, seed)
    return _large(manifest, model, graph, weights, seed)


def require(path: Path, weights: Mapping[str, Any], told: Told | None = None) -> dict[str, Any]:
    """SEQ406 unless a folder just written agrees. Returns the entry for its manifest: what fewer bits cost, if any."""
    manifest = described(path)
    result = _verified(manifest, weights)
    result.require()
    if manifest.quantized or manifest.dtype != "float32":
        result = replace(result, cost=cost(manifest, weights))
    if told is not None:
        told(result)
    return {"error": dict(result.cost)} if result.cost else {}


def cost(manifest: Manifest, weights: Mapping[str, Any], seed: int = 0) -> dict[str, float]:
    """The error of each output due to fewer bits, relative to its largest value: against `weights`, in float64.

    Empty if the model is too large to run here, or if its execution provider is missing.
    """
    model = load(manifest.folder / "spec.yaml")
    graph = build(model)
    if sum(prod(_shape(p.shape)) for p in graph.root.params) > LARGEST:
        return {}
    session, _ = _session(manifest.folder, manifest)
    if session is None:
        return {}
    judge = _judges(graph, {p.name: _rounded(weights[p.name], "float32") for p in graph.root.params})[0]
    judge = LastLogits(judge) if manifest.only_last else judge
    cases = Cases(session.signature, session.facts, session.dtype, seed)
    ways = list(cases.alone())
    differences = compare(OnnxRunner(session), judgement(judge, cases), session.signature, cases, ways)
    outputs = {port.name for port in session.outputs}
    found: dict[str, float] = {}
    for difference in differences:
        if difference.name in outputs:
            found[difference.name] = max(found.get(difference.name, 0.0), float(f"{difference.relative:.2g}"))
    return found


def _compared(
    folder: Path, manifest: Manifest, model: Model, graph: Graph, weights: Mapping[str, Any], seed: int
) -> Verification:
    session, note = _session(folder, manifest)
    if session is None:
        return Verification("nothing", {}, (), note)
    held = {p.name: _rounded(weights[p.name], manifest.dtype) for p in graph.root.params}
    judge, single = _judge(manifest, graph, held)
    cases = Cases(session.signature, session.facts, session.dtype, seed)
    alone = judgement(judge, cases)
    found = compare(OnnxRunner(session), alone, session.signature, cases, cases.ways())
    # weights that amplify rounding errors, as trained ones may, do so in any implementation
    factor = _AMPLIFIED * _ROUNDING[manifest.dtype] / _ROUNDING["float32"]
    stated = _EIGHT_BITS if manifest.quantized else tolerance(_depth(model), manifest.dtype)
    told = session.signature
    costs = rounding(single, alone, told, cases, cases.alone())
    result = Verification(judge.name, _limits(stated, factor, costs), tuple(found), note)
    random = np.random.default_rng(seed)
    for _ in range(_NEARBY):
        if result.passed:
            break
        # luck decides about rounding errors: they may cancel here, and not in another implementation
        judge, single = _judge(manifest, graph, {name: _beside(w, random) for name, w in held.items()})
        other = rounding(single, judgement(judge, cases), told, cases, cases.alone())
        costs = {name: max(cost, other[name]) for name, cost in costs.items()}
        result = replace(result, limits=_limits(stated, factor, costs))
    return result


def _limits(stated: float, factor: float, costs: Mapping[str, float]) -> dict[str, float]:
    return {name: max(stated, factor * cost) for name, cost in costs.items()}


def _beside(weights: Array, random: np.random.Generator) -> Array:
    """Each number moved to the next float32, up or down at random."""
    towards = np.where(random.random(weights.shape) < 0.5, -np.inf, np.inf).astype(np.float32)
    return np.nextafter(weights, towards)


def _large(
    manifest: Manifest, model: Model, graph: Graph, weights: Mapping[str, Any] | None, seed: int
) -> Verification:
    """Checks each distinct layer once, compiled anew with the true weights, and every stored tensor if `weights` are
    given."""
    if weights is not None:
        _check_tensors(manifest, graph, weights)
    short = truncated(model)
    found = free_memory()
    needed = _BYTES * sum(prod(_shape(p.shape)) for p in short[0].root.params) if short else 0
    if short is None or (found is not None and needed > found):
        return Verification("nothing", {}, (), "the model is too large to run here; its files are what was written")
    small, names = short
    whole = recover(manifest, graph, set(names.values())) if weights is None else weights
    known = {name: whole[old] for name, old in names.items()}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        says = {name: fact.to_json() for name, fact in facts(small).items()}
        write_directory(small, folder, known, inputs=says, **manifest.options)
        result = _compared(folder, manifest, model, small, known, seed)
    notes = [f"more than {LARGEST:,} parameters: each distinct layer was checked once", result.note]
    return replace(result, note="; ".join(filter(None, notes)))


def _check_tensors(manifest: Manifest, graph: Graph, weights: Mapping[str, Any]) -> None:
    """SEQ406 unless every tensor of the files follows from the weights, bit for bit."""
    for tensor in stored(manifest, graph, weights):
        if not np.array_equal(_bits(tensor.lazy.numpy()), _bits(tensor.array)):
            text = f"the tensor `{tensor.name}` in the files is not what follows from the weights"
            raise CompileError("SEQ406", text, REPORT)


def _bits(array: Any) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _session(folder: Path, manifest: Manifest) -> tuple[Session | None, str]:
    """A session on the target's provider, or else on the CPU, with a note; None in bfloat16, which the CPU lacks."""
    wanted = providers.of_target(manifest.target)
    if wanted != [providers.CPU]:
        try:
            return Session(folder, wanted), ""
        except RuntimeFault as fault:
            if fault.code != "SEQ501":
                raise
    if manifest.dtype == "bfloat16":
        return None, "nothing here computes in bfloat16: not checked"
    note = "" if wanted == [providers.CPU] else f"{wanted[0]} does not work here: checked on the CPU"
    return Session(folder, [providers.CPU]), note


def _judge(manifest: Manifest, graph: Graph, weights: Mapping[str, Array]) -> tuple[Runner, Runner]:
    """`_judges`, with only the last logits if the files give these; if quantized, references with rounded weights."""
    if manifest.quantized:
        options = manifest.options
        flat = rounded(graph, options["target"], options["dtype"], options["quantize"])
        both: tuple[Runner, Runner] = ReferenceRunner(flat, weights), ReferenceRunner(flat, weights, "float32")
    else:
        both = _judges(graph, weights)
    return (LastLogits(both[0]), LastLogits(both[1])) if manifest.only_last else both


def _judges(graph: Graph, weights: Mapping[str, Array]) -> tuple[Runner, Runner]:
    """PyTorch, or else the NumPy reference of every op, in float64 and in float32."""
    try:
        from seqspec.backends.torch import module
    except ImportError:
        return ReferenceRunner(graph, weights), ReferenceRunner(graph, weights, "float32")
    single, told = module(graph, weights), signature(graph)
    return TorchRunner(deepcopy(single), "float64", told), TorchRunner(single, "float32", told)


def _rounded(array: Any, dtype: str) -> Array:
    """A weight as rounded to the file's dtype, in float32."""
    exact = np.asarray(as_numpy(array), np.float32)
    if dtype == "float32":
        return exact
    if dtype == "float16":
        return exact.astype(np.float16).astype(np.float32)
    import ml_dtypes

    return exact.astype(ml_dtypes.bfloat16).astype(np.float32)


def _depth(model: Model) -> int:
    """The number of layers in sequence, of all stacks."""
    layers = [layer for stack in model.resolved().stacks.values() for layer in stack.flat()]
    return sum(layer.recurrent.num_layers if layer.recurrent else 1 for layer in layers)


def _shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)
