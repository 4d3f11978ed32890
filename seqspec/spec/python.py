"""Makes a document of a spec given as Python values; its findings have paths instead of lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqspec.diagnostics import Diagnostic, Report, SpecError, format_path
from seqspec.document import MAX_DEPTH, MAX_NODES, Document
from seqspec.document.compose import Budget
from seqspec.document.node import At, Entry, Node, Path, mapping, sequence
from seqspec.document.overrides import FILE as SET
from seqspec.document.overrides import apply

_START = At(0, 0)


class _Stop(Exception):
    """Too deep, too many values, or cyclic: the rest is not read."""


def document_of(source: Mapping[str, Any], overrides: Sequence[str] = ()) -> Document:
    """The document of a mapping. SpecError with every value that cannot be part of a spec."""
    report, budget = Report(), Budget()
    try:
        root = _Reader(report, budget).node(source, ())
    except _Stop:
        raise SpecError(tuple(report)) from None
    report.raise_errors({})
    sources = {SET: "\n".join(overrides)} if overrides else {}
    if overrides:
        root = apply(root, overrides, budget, report)
        report.raise_errors(sources)
    return Document(root, "", sources)


class _Reader:
    def __init__(self, report: Report, budget: Budget) -> None:
        self.report, self.budget = report, budget

    def node(self, value: Any, path: Path) -> Node:
        self.budget.nodes -= 1
        if self.budget.nodes < 0:
            self.stop("SEQ014", f"more than {MAX_NODES:,} values", path)
        if len(path) >= MAX_DEPTH:
            self.stop("SEQ116", f"nested more than {MAX_DEPTH} levels deep, or in a circle", path)
        if isinstance(value, Mapping):
            return mapping(self.entries(value, path), like=_leaf(""))
        if isinstance(value, (list, tuple)):
            return sequence([self.node(item, (*path, n)) for n, item in enumerate(value)], like=_leaf(""))
        if value is None:
            self.find("SEQ004", "None is not a value", path, "leave the key out")
        elif type(value) not in (str, int, float, bool):
            name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            self.find("SEQ116", f"a {name} cannot stand in a spec", path, _advice(value))
        return _leaf(value if type(value) in (str, int, float, bool) else "")

    def entries(self, value: Mapping[Any, Any], path: Path) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for key, inner in value.items():
            if type(key) is not str:
                self.find("SEQ116", f"the key {key!r} is not text", path)
            elif key == "extends" and not path:
                self.find("SEQ036", "`extends` needs a spec that is a file", ("extends",))
            else:
                entries[key] = Entry(_leaf(key), self.node(inner, (*path, key)))
        return entries

    def find(self, code: str, message: str, path: Path, hint: str | None = None) -> None:
        self.report.add(Diagnostic(code, message, path=format_path(path), hint=hint))

    def stop(self, code: str, message: str, path: Path) -> None:
        self.find(code, message, path[:8])
        raise _Stop


def _leaf(value: str | int | float | bool) -> Node:
    return Node(value, "", _START, _START)


def _advice(value: Any) -> str | None:
    """The hint for a NumPy or torch scalar."""
    return "write `.item()` behind it" if hasattr(value, "item") else None
