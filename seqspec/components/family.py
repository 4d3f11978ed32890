"""Families of kinds: what may stand at one place of a spec, told apart by `kind`, or by a key of its own.

    class Norm(Family):
        kinds = {"layernorm": "norms:LayerNorm", "rmsnorm": "norms:RMSNorm"}

A field takes the family, `norm: Norm | None`, and gets one of its classes. What the others ask of a kind are the
methods and class variables of its family, so that nobody asks which kind it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from seqspec.components.base import Component


class Family(Component):
    """What all kinds of a place share. A class is imported when a spec names it.

    pydantic's own tagged unions make every class that a spec might name and build its schema; this makes those that it
    does name, so that a check costs what its spec uses and not what the language has.
    """

    kinds: ClassVar[Mapping[str, str]] = {}
    """`module:Class` of seqspec.components by `kind`; a bare string stands for `{kind: string}`."""
    keys: ClassVar[Mapping[str, str]] = {}
    """The same by the key that a class without a `kind` is told by, which it alone requires."""

    if TYPE_CHECKING:

        @property
        def kind(self) -> str:
            """Its word, of those that have one."""

    @classmethod
    def members(cls) -> Iterator[type[Component]]:
        """The classes of a family, in the order they are listed; of a class that is none, nothing."""
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
    """Whether a class lists kinds, and is none of them."""
    return "kinds" in vars(cls)


def _imported(place: str) -> type[Component]:
    module, _, name = place.partition(":")
    found: type[Component] = getattr(import_module(f"seqspec.components.{module}"), name)
    return found
