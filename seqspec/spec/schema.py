"""The JSON Schema (draft 7) of specs, read off the pydantic classes and made for editors.

Alternatives are an enumeration of `kind` with a condition for each value, not a `oneOf`, so that a misspelt field gives
one message at its place and completion describes each kind. The schema accepts everything that `check` accepts; rules
that relate several fields are known only to `check`.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from seqspec.spec import docs
from seqspec.spec.fields import Kind, components, fields, keys_instead, kinds, leaves
from seqspec.spec.model import Model

Json = dict[str, Any]

ID = "https://seqspec.dev/schemas/seqspec-1.schema.json"
"""Identifies the schema and its version. Nothing is fetched from there."""

_PLAIN: dict[Any, Json] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_EXTENDS = "A spec to merge this one over: a relative path inside the folder of the outermost spec."


def text() -> str:
    """The schema as text, as stored in `schemas/`."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def schema() -> Json:
    """The schema as data."""
    return _Writer().document()


class _Writer:
    def __init__(self) -> None:
        self.definitions: dict[str, Json] = {}
        self.unions: dict[tuple[Kind, ...], str] = {}

    def document(self) -> Json:
        whole = self.mapping(Model)
        whole["anyOf"] = [{"required": ["encoder"]}, {"required": ["decoder"]}]
        extends = {"type": "string", "description": _EXTENDS}
        whole["properties"]["extends"] = extends  # a spec with it is checked by `laid_over`; here for completion
        # a spec that extends another may hold any part of one, so only its top-level keys are known
        laid_over = {
            "type": "object",
            "properties": {"extends": extends, **{name: {} for name in fields(Model)}},
            "required": ["extends"],
            "additionalProperties": False,
        }
        return {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$id": ID,
            "title": "seqspec, version 1",
            "if": {"type": "object", "required": ["extends"]},
            "then": laid_over,
            "else": whole,
            "definitions": dict(sorted(self.definitions.items())),
        }

    def mapping(self, cls: Kind) -> Json:
        """The schema of a class: an object with its fields and no others."""
        properties = {}
        for name, field in fields(cls).items():
            inner = self.field(field, name)
            if about := docs.of_field(cls, "from_" if name == "from" else name):
                inner = {"description": about, **(inner if "$ref" not in inner else {"allOf": [inner]})}
            properties[name] = inner
        return {
            "type": "object",
            "description": docs.of_class(cls),
            "properties": properties,
            "required": sorted(_required(cls)),
            "additionalProperties": False,
        }

    def field(self, field: FieldInfo, name: str) -> Json:
        inner = self.value(field.annotation, name) | _constraints(field.metadata)
        default = field.default
        return inner if field.is_required() or default is None else {**inner, "default": default}

    def value(self, annotation: Any, name: str) -> Json:
        origin = get_origin(annotation)
        if origin is Annotated:
            base, *metadata = get_args(annotation)
            return self.value(base, name) | _constraints(metadata)
        if origin is Union or origin is types.UnionType:
            return self.alternatives(annotation, name)
        if origin is Literal:
            words = list(get_args(annotation))
            return {"const": words[0]} if len(words) == 1 else {"enum": words}
        if origin is list:
            return {"type": "array", "items": self.value(get_args(annotation)[0], f"{name}_item")}
        if origin is dict:
            key, item = get_args(annotation)
            return {
                "type": "object",
                "propertyNames": self.value(key, name),
                "additionalProperties": self.value(item, name),
            }
        return dict(_PLAIN[annotation]) if annotation in _PLAIN else self.classes(leaves(annotation), name)

    def reference(self, cls: Kind) -> Json:
        if cls.__name__ not in self.definitions:
            self.definitions[cls.__name__] = {}  # first, since its fields may refer back to it
            self.definitions[cls.__name__] = self.mapping(cls)
        return {"$ref": f"#/definitions/{cls.__name__}"}

    def alternatives(self, annotation: Any, name: str) -> Json:
        parts = [part for part in get_args(annotation) if part is not type(None)]
        if len(parts) == 1:
            return self.value(parts[0], name)
        classes = components(leaves(annotation))
        plain = [self.value(part, name) for part in parts if not components(leaves(part))]
        if not classes:
            return {"anyOf": plain}
        mapping = self.classes(classes, name)
        return {"anyOf": [*plain, mapping]} if plain else mapping

    def classes(self, classes: Sequence[Kind], name: str) -> Json:
        return self.reference(classes[0]) if len(classes) == 1 else self.union(tuple(classes), name)

    def union(self, classes: tuple[Kind, ...], name: str) -> Json:
        """A reference to the definition that chooses one of several classes."""
        if classes not in self.unions:
            title = f"any_{name}"
            while title in self.definitions:
                title += "_"
            self.unions[classes] = title
            self.definitions[title] = {}
            self.definitions[title] = self._union(classes)
        return {"$ref": f"#/definitions/{self.unions[classes]}"}

    def _union(self, classes: tuple[Kind, ...]) -> Json:
        known = kinds(classes)
        chosen = self._by_kind(known)
        for key, cls in reversed(keys_instead(classes).items()):
            chosen = {"if": {"required": [key]}, "then": self.reference(cls), "else": chosen}
        chosen = {"type": "object", **chosen}
        bare = [kind for kind, cls in known.items() if not _required(cls) - {"kind"}]
        return {"anyOf": [_enumeration(bare, known), chosen]} if bare else chosen

    def _by_kind(self, known: dict[str, Kind]) -> Json:
        conditions = [
            {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": self.reference(cls)}
            for kind, cls in known.items()
        ]
        return {"properties": {"kind": _enumeration(list(known), known)}, "required": ["kind"], "allOf": conditions}


def _required(cls: Kind) -> set[str]:
    return {name for name, field in fields(cls).items() if field.is_required()}


def _enumeration(words: list[str], known: dict[str, Kind]) -> Json:
    """An enumeration of kinds, with descriptions under the keywords that VS Code and its YAML extension read."""
    about = [docs.of_class(known[word]) for word in words]
    return {"type": "string", "enum": words, "enumDescriptions": about, "markdownEnumDescriptions": about}


def _constraints(metadata: Iterable[Any]) -> Json:
    """Bounds, patterns and lengths from the metadata of annotated-types and pydantic."""
    found: Json = {}
    for item in metadata:
        if isinstance(item, FieldInfo):
            found |= _constraints(item.metadata)
            continue
        for name, word in _BOUNDS.items():
            if (bound := getattr(item, name, None)) is not None:
                found[word] = bound
        if (pattern := getattr(item, "pattern", None)) is not None:
            found["pattern"] = pattern
        if (shortest := getattr(item, "min_length", None)) is not None:
            found["minItems"] = shortest
    return found
