"""Writes plain data as YAML the way people write specs: blocks for structure, one line for settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from seqspec.diagnostics import escape

WIDTH = 110
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_COMBINED = {"all", "any"}
_CONSTANTS = {"true", "false", "null"}  # unquoted, these would be YAML 1.2's constants


def to_yaml(spec: dict[str, Any], notes: Iterable[str] = ()) -> str:
    """A whole document, with the notes as comments above it."""
    comments = [f"# {escape(note)}" for note in notes]
    return "\n".join([*comments, *_mapping(spec, "")]) + "\n"


def _mapping(data: dict[str, Any], indent: str) -> Iterator[str]:
    for key, value in data.items():
        before = f"{indent}{_scalar(key)}:"
        if _on_one_line(value, before):
            yield f"{before} {flow(value)}"
        else:
            yield before
            yield from _block(value, indent + "  ")


def _list(data: list[Any], indent: str) -> Iterator[str]:
    for value in data:
        if _on_one_line(value, indent):
            yield f"{indent}- {flow(value)}"
        else:
            first, *rest = _block(value, indent + "  ")
            yield f"{indent}- {first.lstrip()}"
            yield from rest


def _block(value: Any, indent: str) -> Iterator[str]:
    return _mapping(value, indent) if isinstance(value, dict) else _list(value, indent)


def _on_one_line(value: Any, before: str) -> bool:
    """Scalars; and where they fit: lists and mappings of scalars, mappings with a `kind`, combined masks."""
    if not isinstance(value, dict | list):
        return True
    items = value.values() if isinstance(value, dict) else value
    flat = not any(isinstance(item, dict | list) for item in items)
    setting = isinstance(value, dict) and ("kind" in value or value.keys() <= _COMBINED)
    return (flat or setting) and len(before) + len(flow(value)) < WIDTH


def flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {flow(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return _scalar(value)


def _scalar(value: str | bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _CONSTANTS
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < 1e15
        return str(int(value)) if whole else re.sub(r"e([+-])0+", r"e\1", repr(value))
    return str(value)
