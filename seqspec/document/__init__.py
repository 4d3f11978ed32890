"""Reads YAML 1.2 into plain values, with a place for every key and value.

Syntax, limits, `extends` and `--set` are handled here; what a key means is up to the spec package.
"""

from __future__ import annotations

from .document import Document, Located
from .limits import MAX_ALIASES, MAX_BYTES, MAX_DEPTH, MAX_FILES, MAX_NODES
from .load import load, load_file, load_text
from .node import Path, Place, Plain

__all__ = [
    "MAX_ALIASES",
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_FILES",
    "MAX_NODES",
    "Document",
    "Located",
    "Path",
    "Place",
    "Plain",
    "load",
    "load_file",
    "load_text",
]
