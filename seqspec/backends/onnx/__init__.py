"""ONNX files from graphs, directly: no tracing, opset 23, one external data file."""

from __future__ import annotations

from seqspec.backends.memory import refuse_if_too_large
from seqspec.backends.onnx.export import export, model, write_directory
from seqspec.backends.onnx.programs import Programs

__all__ = ["Programs", "export", "model", "refuse_if_too_large", "write_directory"]
