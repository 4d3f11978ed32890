"""Checks a spec: its Model, or everything that is wrong with it, each finding at a line and column.

    read (document) -> fields (pydantic) -> meaning (Model.check) -> graph (build)

Each step runs only if the one before found no error, since its findings would otherwise be consequences of those.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from pydantic import ValidationError

from seqspec.build import graph_of
from seqspec.components.base import Finding
from seqspec.diagnostics import CompileError, Diagnostic, Report, SpecError, arguments
from seqspec.document import Document, Path
from seqspec.document import load as read
from seqspec.graph.ir import Graph
from seqspec.graph.types import ShapeError
from seqspec.spec.model import Model

Source = Model | str | os.PathLike[str] | Mapping[str, Any]

# Findings about a key rather than its value.
_ON_KEYS = frozenset({"SEQ213", "SEQ219", "SEQ220", "SEQ232", "SEQ234", "SEQ235"})
# What a layer inherits from its stack, and a stack from `defaults`.
_INHERITED = ("position", "mask", "norm", "norm_placement", "final_norm", "bias", "dropout", "d_model")
_TAKES = "a spec is a path, a text, a mapping or a Model"
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class Checked(NamedTuple):
    """The result of a check. `model` is there if its fields are valid, `graph` and `document` if there is no error."""

    report: Report
    sources: Mapping[str, str]
    model: Model | None = None
    graph: Graph | None = None
    document: Document | None = None


def load(source: Source, overrides: Sequence[str] = ()) -> Model:
    """The checked model, as written. SpecError with every finding if the spec has an error.

    `source` is a path, a text (a `str` that holds a line break or starts with `{`), a mapping or a Model. `overrides`
    are `KEY=VALUE` texts as for `--set`.
    """
    found = examine(source, overrides)
    found.report.raise_errors(found.sources)
    assert found.model is not None
    return found.model


def check(source: Source, overrides: Sequence[str] = ()) -> Report:
    """Everything that is wrong with a spec, warnings included; an empty Report if nothing is. Arguments as for `load`.

    Raises only for what is no spec at all (SEQ116), or for overrides that are not texts (SEQ417).
    """
    return examine(source, overrides).report


def examine(source: Source, overrides: Sequence[str] = ()) -> Checked:
    """Like `check`, but with everything that the check made. What is no spec at all raises, since it has no places."""
    if not isinstance(source, Model | str | os.PathLike | Mapping):
        raise SpecError(Diagnostic("SEQ116", f"{_TAKES}, not {arguments.given(source)}"))
    arguments.texts(overrides, "overrides", "KEY=VALUE texts")
    try:
        document = _document(source, overrides)
    except SpecError as error:
        return Checked(Report.of(error), error.sources)
    return examine_document(document, source.tokenizer_path if isinstance(source, Model) else "")


def examine_document(document: Document, tokenizer_path: str = "") -> Checked:
    """`examine` for a document that is already read; `tokenizer_path` is where its tokenizer is, if that is known."""
    report = Report()
    try:
        model = Model.model_validate(document.data)
    except ValidationError as error:
        from seqspec.spec.findings import explain  # not at the top: only a wrong spec pays for it

        report.extend(explain(Model, document, error.errors(include_url=False)))
        return Checked(report, document.sources)
    resolved = model.resolved()
    report.extend(_place(document, finding) for finding in resolved.check())
    if model.tokenizer is not None:
        report.extend(_place(document, finding) for finding in _tokenizer(document, model, tokenizer_path))
    if report.has_errors:
        return Checked(report, document.sources, model)
    try:
        graph = graph_of(resolved)
    except ShapeError as error:
        report.add(document.diagnostic("SEQ301", str(error), _path(error.origin)))
        return Checked(report, document.sources, model)
    return Checked(report, document.sources, model, graph, document)


@contextmanager
def placing(document: Document | None) -> Iterator[None]:
    """Adds the line and column in the spec to a CompileError that names a part of it."""
    try:
        yield
    except CompileError as error:
        (found,) = error.diagnostics
        if document is not None and found.path:
            error.place(
                document.diagnostic(found.code, found.message, _path(found.path), hint=found.hint), document.sources
            )
        raise


def _tokenizer(document: Document, model: Model, path: str) -> Iterator[Finding]:
    """What is wrong with the tokenizer's file. The model remembers where the file is."""
    from seqspec.document import files
    from seqspec.spec import tokenizer  # models without one do not pay for it

    try:
        model._tokenizer_path = path or tokenizer.find(document)
        yield from tokenizer.check(model, model.tokenizer_path)
    except files.Refused as refused:
        yield Finding(refused.code, ("tokenizer",), refused.message, refused.hint)


def _document(source: Source, overrides: Sequence[str]) -> Document:
    if isinstance(source, Model):
        from seqspec.spec.dump import plain

        source = plain(source, given=True)
    if isinstance(source, Mapping):
        from seqspec.spec.python import document_of

        return document_of(source, overrides)
    if not isinstance(source, str):
        source = str(arguments.path(source, "source"))
    return read(source, overrides=overrides)


def _place(document: Document, finding: Finding) -> Diagnostic:
    """The finding as a diagnostic at its path, or if the value there is inherited, at the default it comes from."""
    path = finding.path
    source = path if document.has(path) else _source(document, path)
    related = [] if source is path else [("the part that it does not fit", path)]
    on_key = finding.code in _ON_KEYS
    return document.diagnostic(finding.code, finding.message, source, key=on_key, hint=finding.hint, related=related)


def _source(document: Document, path: Path) -> Path:
    """Where an inherited value is written: on the stack or in `defaults`. Otherwise the path itself."""
    for n, part in enumerate(path):
        if part in _INHERITED:
            for inherited in ((path[0], *path[n:]), ("defaults", *path[n:])):
                if document.has(inherited):
                    return inherited
    return path


def _path(origin: str) -> Path:
    """`decoder.layers[0]` -> ("decoder", "layers", 0)"""
    return tuple(int(index) if index else name for name, index in _PART.findall(origin))
