"""Loads a file or text as a `Document`: read, parse, extend, override. Raises only `SpecError`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from seqspec.diagnostics import Report

from .compose import Budget
from .document import Document
from .layers import Layers
from .node import Node

TEXT = "<text>"


def load(source: str | os.PathLike[str], *, overrides: Sequence[str] = ()) -> Document:
    """A spec from a path, or from text: a `str` that holds a line break or starts with `{`."""
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return load_text(source, overrides=overrides)
    return load_file(source, overrides=overrides)


def load_file(path: str | os.PathLike[str], *, overrides: Sequence[str] = ()) -> Document:
    """A spec from a file, merged over what it extends, with the `--set` overrides applied."""
    layers = Layers(Budget(), Report())
    file = os.fspath(path)
    return _finish(layers, layers.outermost(file), file, overrides)


def load_text(text: str, *, file: str = TEXT, overrides: Sequence[str] = ()) -> Document:
    """A spec from text. It cannot extend a file, since there is no folder to look in."""
    layers = Layers(Budget(), Report())
    return _finish(layers, layers.layer(text.removeprefix("\ufeff"), file), file, overrides)


def _finish(layers: Layers, root: Node, file: str, overrides: Sequence[str]) -> Document:
    sources = dict(layers.sources)
    if overrides:
        from .overrides import FILE, apply  # not at the top: a run without `--set` does not pay for it

        sources[FILE] = "\n".join(overrides)
        root = apply(root, overrides, layers.budget, layers.report)
    layers.report.raise_errors(sources)
    return Document(root, file, sources)
