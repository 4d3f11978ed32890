"""Turns pydantic's errors into diagnostics, each at the key or value that is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqspec.components.base import Component
from seqspec.diagnostics import Diagnostic, format_path, quoted
from seqspec.document import Document
from seqspec.spec import keys, wording
from seqspec.spec.fields import alternatives_at, components

Path = tuple[str | int, ...]

# what pydantic calls a plain alternative in a `loc`, for a field that takes a plain value or a mapping
_PLAIN = frozenset({"bool", "int", "float", "str", "constrained-int", "constrained-float", "constrained-str"})
_NOT_A_MAPPING = frozenset({"model_type", "model_attributes_type"})


@dataclass(frozen=True)
class Fault:
    """One pydantic error. `path` exists in the document; `rest` follows: a missing field, or an alternative's name."""

    type: str
    path: Path
    rest: Path
    value: Any
    context: Mapping[str, Any]
    alternatives: Sequence[Any]  # the types that `path` may hold

    @property
    def plain(self) -> bool:
        """Whether it concerns the plain alternative of a field that also takes a mapping."""
        return len(self.rest) == 1 and self.rest[0] in _PLAIN

    @property
    def where(self) -> str:
        """The field's name for a message."""
        return quoted(self.path[-1]) if self.path and isinstance(self.path[-1], str) else "this item"


def explain(root: type[Component], document: Document, errors: Iterable[Mapping[str, Any]]) -> Iterator[Diagnostic]:
    """The diagnostics for the errors of a pydantic ValidationError."""
    faults = _one_alternative([_fault(root, document, error) for error in errors])
    by_mapping: dict[Path, list[Fault]] = {}
    for fault in faults:
        if fault.type in ("missing", "extra_forbidden"):
            owner = fault.path[:-1] if fault.type == "extra_forbidden" else fault.path
            by_mapping.setdefault(owner, []).append(fault)
        else:
            yield _explain(document, fault)
    for owner, found in by_mapping.items():
        yield from keys.explain(root, document, owner, found)


def _fault(root: type[Component], document: Document, error: Mapping[str, Any]) -> Fault:
    located = document.locate(error["loc"])
    alternatives = alternatives_at(root, document.data, located.path)
    return Fault(error["type"], located.path, located.rest, error.get("input"), error.get("ctx", {}), alternatives)


def _one_alternative(faults: Sequence[Fault]) -> Iterator[Fault]:
    """Keeps the errors about the alternative that is meant; for a plain value or a mapping, pydantic reports both."""
    plain = {fault.path: fault for fault in faults if fault.plain}
    for fault in faults:
        meant = plain.get(fault.path)
        if meant is None or fault.type == "missing":
            yield fault
        elif isinstance(meant.value, dict):
            if fault.type not in _NOT_A_MAPPING and not fault.plain:
                yield fault
        elif fault.plain == (not _names_a_kind(meant)):
            yield fault


def _names_a_kind(fault: Fault) -> bool:
    """Whether the value is text where a bare kind could be."""
    is_kind = any("kind" in cls.model_fields for cls in components(fault.alternatives))
    return isinstance(fault.value, str) and is_kind and wording.boolean(fault.value) is None


def _explain(document: Document, fault: Fault) -> Diagnostic:
    if fault.type in ("union_tag_invalid", "union_tag_not_found"):
        return keys.explain_kind(document, fault)
    said = wording.say(fault)
    on_key = "[key]" in fault.rest
    path = fault.path
    file, span = document.span(path, key=on_key)
    return Diagnostic(said.code, said.message, file, span, path=format_path(path), hint=said.hint)
