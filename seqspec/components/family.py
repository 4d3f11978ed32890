"""Families of kinds: the classes that one place of a spec takes, chosen by `kind` or by a key of their own.

    class Norm(Family):
        kinds = {"layernorm": "norms:LayerNorm", "rmsnorm": "norms:RMSNorm"}

A field is annotated with the family, `norm: Norm | None`, and holds an instance of one of its classes. Other code uses
the methods and class variables of the family, so that it never asks which kind it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from seqspec.components.base import Component


class Family(Component):
    """The base class of the kinds of one place. A class is imported when a spec names it.

    pydantic's tagged unions would import every class of the language and build its schema. With a family, a check
    pays only for the classes that its spec uses.
    """

    kinds: ClassVar[Mapping[str, str]] = {}
    """`module:Class` of seqspec.components, by `kind`. A bare string stands for `{kind: string}`."""
    keys: ClassVar[Mapping[str, str]] = {}
    """`module:Class` of the classes without a `kind`, by the required key that chooses each."""

    if TYPE_CHECKING:

        @property
        def kind(self) -> str:
            """The value of `kind`."""

    @classmethod
    def members(cls) -> Iterator[type[Component]]:
        """The classes of a family, in the order listed; none for a class that is not a family."""
        if _is_family(cls):
            yield from map(_imported, (*cls.kinds.values(), *cls.keys.values()))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(cls._read) if _is_family(cls) else handler(source)

    @classmethod
    def _read(cls, value: Any) -> Component:
        if isinstance(value, cls):
            return value
        named = {"kind": value} if isinstance(value, str) else value
        return _imported(cls._place(named)).model_validate(named)

    @classmethod
    def _place(cls, value: Any) -> str:
        if not isinstance(value, dict):
            raise PydanticCustomError("union_tag_not_found", "a mapping or a kind is needed")
        for key, place in cls.keys.items():
            if key in value:
                return place
        kind = value.get("kind")
        if not isinstance(kind, str):
            raise PydanticCustomError("union_tag_not_found" if kind is None else "union_tag_invalid", "no kind")
        if kind not in cls.kinds:
            raise PydanticCustomError("union_tag_invalid", "unknown kind")
        return cls.kinds[kind]


def _is_family(cls: type[Family]) -> bool:
    """Whether a class is a family itself, rather than one of its kinds."""
    return "kinds" in vars(cls)


def _imported(place: str) -> type[Component]:
    module, _, name = place.partition(":")
    found: type[Component] = getattr(import_module(f"seqspec.components.{module}"), name)
    return found
