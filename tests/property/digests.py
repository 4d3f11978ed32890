"""Hashes of what a spec compiles to. Apart from the rest, so that a new process need not import PyTorch for them."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

import onnx_ir

import seqspec
from seqspec.backends.onnx.export import export
from seqspec.backends.source import source
from seqspec.build import build


@lru_cache(maxsize=64)
def digests(text: str) -> tuple[str, ...]:
    """Hashes of the emitted source and of every ONNX file."""
    return digests_of(seqspec.load(text))


def digests_of(model: seqspec.Model) -> tuple[str, ...]:
    """The same of a model."""
    graph = build(model)
    models = export(graph, seed=3)
    files = [onnx_ir.to_proto(m).SerializeToString(deterministic=True) for _, m in sorted(models.items())]
    return tuple(sha256(content).hexdigest() for content in (source(graph).encode(), *files))
