"""Scales all sizes of a model that have the same letter, such as every width or all numbers of heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic.fields import FieldInfo

from seqspec.components.base import Component, Letter
from seqspec.spec.model import Model


def scaled(model: Model, factors: Mapping[str, int]) -> Model:
    """A resolved model with its sizes multiplied by the factors of their letters."""
    made = _scaled(model, factors)
    assert isinstance(made, Model)
    return made


def letters(model: Model) -> set[str]:
    """The letters of all sizes in a resolved model."""
    return set(_letters(model))


def _letters(value: Any) -> Iterator[str]:
    if isinstance(value, Component):
        for name, field in type(value).model_fields.items():
            found = _letter(field)
            if found and getattr(value, name) is not None:
                yield found.name
            yield from _letters(getattr(value, name))
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _letters(item)


def _scaled(value: Any, factors: Mapping[str, int]) -> Any:
    if isinstance(value, Component):
        fields = type(value).model_fields.items()
        return value.model_copy(update={n: _field(getattr(value, n), _letter(f), factors) for n, f in fields})
    if isinstance(value, list):
        return [_scaled(item, factors) for item in value]
    if isinstance(value, dict):
        return {key: _scaled(item, factors) for key, item in value.items()}
    return value


def _field(value: Any, letter: Letter | None, factors: Mapping[str, int]) -> Any:
    if letter is None or not isinstance(value, int):
        return _scaled(value, factors)
    return value * factors.get(letter.name, 1) // factors.get(letter.over, 1)


def _letter(field: FieldInfo) -> Letter | None:
    """The letter of a field, even if the field is optional."""
    said = [*field.metadata, *_said(field.annotation)]
    return next((item for item in said if isinstance(item, Letter)), None)


def _said(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from annotation.__metadata__
    for part in get_args(annotation):
        yield from _said(part)
