"""seqspec: a declarative architecture compiler for sequence models.

    model = seqspec.load("model.yaml")      checked, or SpecError with every finding
    graph = seqspec.build(model)            ops with symbolic shapes

Names are resolved when they are first used, so that checking a spec never imports torch, onnx or numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqspec.build import build as build
    from seqspec.checking import check as check
    from seqspec.checking import load as load
    from seqspec.diagnostics import CompileError as CompileError
    from seqspec.diagnostics import Diagnostic as Diagnostic
    from seqspec.diagnostics import Report as Report
    from seqspec.diagnostics import RuntimeFault as RuntimeFault
    from seqspec.diagnostics import SeqspecError as SeqspecError
    from seqspec.diagnostics import SpecError as SpecError
    from seqspec.graph.ir import Graph as Graph
    from seqspec.spec.model import Model as Model

__version__ = "0.1.0"

_HOMES = {
    "CompileError": "diagnostics",
    "Diagnostic": "diagnostics",
    "Graph": "graph.ir",
    "Model": "spec.model",
    "Report": "diagnostics",
    "RuntimeFault": "diagnostics",
    "SeqspecError": "diagnostics",
    "SpecError": "diagnostics",
    "build": "build",
    "check": "checking",
    "load": "checking",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'seqspec' has no attribute {name!r}")
    value = getattr(import_module(f"seqspec.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
