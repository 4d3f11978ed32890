"""seqspec: a declarative architecture compiler for sequence models.

    model = seqspec.load("model.yaml")      checked, or SpecError with every finding
    graph = seqspec.build(model)            ops with symbolic shapes
    net   = seqspec.to_torch(model)         an nn.Module; to_source gives its text
    path  = seqspec.to_onnx(model, "out")   a verified folder that a Session runs

Names are imported on first use, so that checking a spec never imports torch, onnx or numpy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqspec.api import build as build
    from seqspec.api import import_model as import_model
    from seqspec.api import to_onnx as to_onnx
    from seqspec.api import to_source as to_source
    from seqspec.api import to_torch as to_torch
    from seqspec.api import verify as verify
    from seqspec.checking import check as check
    from seqspec.checking import load as load
    from seqspec.diagnostics import CompileError as CompileError
    from seqspec.diagnostics import Diagnostic as Diagnostic
    from seqspec.diagnostics import Report as Report
    from seqspec.diagnostics import RuntimeFault as RuntimeFault
    from seqspec.diagnostics import SeqspecError as SeqspecError
    from seqspec.diagnostics import SpecError as SpecError
    from seqspec.graph.ir import Graph as Graph
    from seqspec.reports import report as report
    from seqspec.runtime.generate import generate as generate
    from seqspec.runtime.session import Session as Session
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
    "Session": "runtime.session",
    "SpecError": "diagnostics",
    "build": "api",
    "check": "checking",
    "generate": "runtime.generate",
    "import_model": "api",
    "load": "checking",
    "report": "reports",
    "to_onnx": "api",
    "to_source": "api",
    "to_torch": "api",
    "verify": "api",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'seqspec' has no attribute {name!r}")
    home = _HOMES[name]
    if home.startswith("runtime"):
        from seqspec.diagnostics.extras import extra

        with extra("onnx"):
            return getattr(import_module(f"seqspec.{home}"), name)
    return getattr(import_module(f"seqspec.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps `seqspec.build` the function: importing the module of that name would otherwise replace it."""

    @property
    def build(self) -> Any:
        """The function of `seqspec.api`."""
        return __getattr__("build")

    @build.setter
    def build(self, module: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package
