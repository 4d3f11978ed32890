"""Graph -> one standalone PyTorch file that reads as if written by hand."""

from __future__ import annotations

from seqspec.backends.source.file import Source, write
from seqspec.graph.ir import Graph


def source(graph: Graph, name: str = "", doc: str = "") -> str:
    """The text of the file. `name` is the model's class, the root region's name by default; `doc` its first line."""
    return write(graph, name, doc).text


__all__ = ["Source", "source", "write"]
