"""`compile --to torch`: the emitted file and its weights, and the check that they compute what the spec says."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from seqspec.backends.directory import refuse, replacing, seal, write
from seqspec.backends.memory import refuse_if_too_large_at_once
from seqspec.backends.source import write as write_source
from seqspec.backends.torch import load as execute
from seqspec.backends.weights import Drawn, as_numpy, check_values
from seqspec.backends.weights import check as check_weights
from seqspec.build import build
from seqspec.checking import load
from seqspec.diagnostics import RuntimeFault
from seqspec.graph.ir import Graph
from seqspec.graph.signature import signature
from seqspec.runtime.cases import Cases
from seqspec.runtime.compare import Told, Verification, compare, judgement
from seqspec.runtime.facts import facts
from seqspec.runtime.judges import ReferenceRunner, TorchRunner
from seqspec.runtime.manifest import read
from seqspec.spec.tokenizer import TokenizerFile, contents

SOURCE, WEIGHTS, SPEC = "model.py", "model.safetensors", "spec.yaml"
TOLERANCE = 1e-10


def write_folder(
    graph: Graph,
    path: Path,
    weights: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    spec: str,
    tokenizer: TokenizerFile | None = None,
    check: Callable[[Path], None] | None = None,
) -> None:
    """Writes the folder to `path`, complete or not at all. `check` gets it complete, before it replaces `path`."""
    refuse(path)
    refuse_if_too_large_at_once(graph)
    if weights is None:
        weights = Drawn(graph.root.params, seed)
    else:
        check_weights(graph.root.params, weights)
        check_values(graph.root.params, weights)
    source = write_source(graph)
    manifest = {
        "backend": "torch",
        "versions": {"seqspec-compiler": _version("seqspec-compiler")},
        "target": "torch",
        "dtype": "float32",
        "graphs": {},
        "model": source.model,
        "signature": signature(graph).to_json(),
        "inputs": {name: fact.to_json() for name, fact in facts(graph).items()},
    }
    if tokenizer is not None:
        manifest["tokenizer"] = tokenizer.to_json()
    with replacing(path) as folder:
        write(folder / SOURCE, source.text.encode())
        single = {p.name: np.ascontiguousarray(as_numpy(weights[p.name]), np.float32) for p in graph.root.params}
        save_file(single, folder / WEIGHTS)
        (folder / WEIGHTS).chmod((folder / SOURCE).stat().st_mode)  # safetensors lets the owner alone read it
        for name, content in {**contents(tokenizer), SPEC: spec.encode()}.items():
            write(folder / name, content)
        seal(folder, manifest, {})
        if check is not None:
            check(folder)


def verify(path: str | os.PathLike[str], *, seed: int = 0) -> Verification:
    """Compares the file of a folder, run in float64 with its weights, with the NumPy reference of every op."""
    folder = Path(path)
    manifest = read(folder)
    graph = build(load(folder / SPEC))
    weights = load_file(folder / WEIGHTS)
    judge = ReferenceRunner(graph, weights)
    judged = TorchRunner(_module(folder, graph, weights), "float64", signature(graph))
    cases = Cases(manifest.signature, manifest.facts, np.dtype(np.float64), seed)
    found = compare(judged, judgement(judge, cases), manifest.signature, cases, cases.ways())
    return Verification(judge.name, {d.name: TOLERANCE for d in found}, tuple(found))


def require(path: Path, told: Told | None = None) -> None:
    """SEQ406 unless `verify` passes."""
    result = verify(path)
    result.require()
    if told is not None:
        told(result)


def _module(folder: Path, graph: Graph, weights: Mapping[str, Any]) -> Any:
    """The model of the file itself, which is executed only if it is what its spec compiles to."""
    import torch

    source = write_source(graph)
    text = (folder / SOURCE).read_text("utf-8")
    if text != source.text:
        text = f"{SOURCE} is not what this release makes of the spec beside it"
        raise RuntimeFault("SEQ508", text, "compile the spec again", str(folder))
    model = getattr(execute(text), source.model)()
    model.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
    return model


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
