"""Prints a model as YAML: as written, or with every default filled in.

The result loads to the same model. A resolved spec is a fixed point: dumping it again gives the same bytes.
"""

from __future__ import annotations

from typing import Any

from seqspec.components.base import Component
from seqspec.document.dump import to_yaml
from seqspec.spec.model import Model

# Keys printed first and last; other fields keep the order of their class.
_FIRST = ("kind", "repeat", "name", "input")
_LAST = ("blocks", "layers", "block", "pattern")


def written(model: Model) -> str:
    """The spec as written, after `extends` and `--set`."""
    return to_yaml(plain(model, given=True))


def resolved(model: Model) -> str:
    """The spec with every default filled in, which is itself a spec and compiles to the same bytes."""
    return to_yaml(plain(model.resolved()))


def plain(model: Model, *, given: bool = False) -> dict[str, Any]:
    """The model as dicts, lists and values: only the fields that were `given`, or all that are not None."""
    data = _plain(model, given)
    assert isinstance(data, dict)
    return {key: data[key] for key in ("seqspec", "name", *data)}


def _plain(value: Any, given: bool) -> Any:
    if isinstance(value, Component):
        return _component(value, given)
    if isinstance(value, list):
        return [_plain(item, given) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item, given) for key, item in value.items()}
    return value


def _component(component: Component, given: bool) -> dict[str, Any] | str:
    data = {}
    for name, field in sorted(type(component).model_fields.items(), key=lambda item: _rank(item[0])):
        value = getattr(component, name)
        if value is not None and (not given or name in component.model_fields_set):
            data[field.alias or name] = _plain(value, given)
    return data["kind"] if list(data) == ["kind"] else data


def _rank(name: str) -> int:
    if name in _FIRST:
        return _FIRST.index(name) - len(_FIRST)
    return 1 + _LAST.index(name) if name in _LAST else 0
