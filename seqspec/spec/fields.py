"""What a spec may hold at a path, read off the pydantic classes. Used to explain mistakes, never to validate."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from seqspec.components.base import Component
from seqspec.components.family import Family

Kind = type[Component]


def leaves(annotation: Any) -> list[Any]:
    """The alternatives of a type: `Norm | None` -> [LayerNorm, RMSNorm]."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return leaves(get_args(annotation)[0])
    if origin is Union or origin is types.UnionType:
        return [leaf for part in get_args(annotation) for leaf in leaves(part)]
    if isinstance(annotation, type) and issubclass(annotation, Family) and (members := list(annotation.members())):
        return list(members)
    return [] if annotation is type(None) else [annotation]


def components(alternatives: Sequence[Any]) -> list[Kind]:
    """Those alternatives that are components: mappings with fields of their own."""
    return [leaf for leaf in alternatives if isinstance(leaf, type) and issubclass(leaf, Component)]


def kind_of(cls: Kind) -> str | None:
    """The value of `kind` that chooses a class, if it has one."""
    field = cls.model_fields.get("kind")
    return str(get_args(field.annotation)[0]) if field else None


def kinds(alternatives: Sequence[Any]) -> dict[str, Kind]:
    """The classes that `kind` chooses from, by its value."""
    return {kind: cls for cls in components(alternatives) if (kind := kind_of(cls))}


def keys_instead(alternatives: Sequence[Any]) -> dict[str, Kind]:
    """The classes without a `kind`, by the required key that chooses them: `block`, `pattern`, `all`, `any`."""
    without = [cls for cls in components(alternatives) if not kind_of(cls)]
    return {key: cls for cls in without for key, field in fields(cls).items() if field.is_required()}


def fields(cls: Kind) -> dict[str, Any]:
    """A class's fields under the names that a spec uses."""
    if not cls.__pydantic_fields_complete__:  # it refers to a class that was defined later
        cls.model_rebuild()
    return {field.alias or name: field for name, field in cls.model_fields.items()}


def words(alternatives: Sequence[Any]) -> list[str]:
    """The words that a field takes, if it takes a fixed list of them."""
    return [str(w) for leaf in alternatives if get_origin(leaf) is Literal for w in get_args(leaf)]


def choose(alternatives: Sequence[Any], value: Any) -> Kind | None:
    """The class that a value is meant for, if that is clear."""
    known = kinds(alternatives)
    if isinstance(value, str):
        return known.get(value)
    if not isinstance(value, dict):
        return None
    for key, cls in keys_instead(alternatives).items():
        if key in value:
            return cls
    kind = value.get("kind")
    if isinstance(kind, str) and kind in known:
        return known[kind]
    found = components(alternatives)
    return found[0] if len(found) == 1 else None


def alternatives_at(root: Kind, data: Any, path: Sequence[str | int]) -> list[Any]:
    """The types that a path may hold, as far as the values on the way there decide; an empty list if they do not."""
    here, value = [root], data
    for part in path:
        here = list(_inside(here, value, part))
        value = _child(value, part)
    return here


def reachable(root: Kind) -> Iterator[Kind]:
    """Every class of the language, once."""
    seen: set[Kind] = set()
    waiting = [root]
    while waiting:
        cls = waiting.pop()
        if cls in seen:
            continue
        seen.add(cls)
        yield cls
        for field in fields(cls).values():
            waiting.extend(_classes(field.annotation))


def _classes(annotation: Any) -> Iterator[Kind]:
    for leaf in leaves(annotation):
        if isinstance(leaf, type) and issubclass(leaf, Component):
            yield leaf
        else:
            for argument in get_args(leaf):
                yield from _classes(argument)


def _inside(here: Sequence[Any], value: Any, part: str | int) -> Iterator[Any]:
    if isinstance(part, int):
        for leaf in here:
            if get_origin(leaf) is list:
                yield from leaves(get_args(leaf)[0])
        return
    cls = choose(here, value)
    if cls is not None and part in fields(cls):
        yield from leaves(fields(cls)[part].annotation)
    for leaf in here:
        if get_origin(leaf) is dict:
            yield from leaves(get_args(leaf)[1])


def _child(value: Any, part: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    return value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None
