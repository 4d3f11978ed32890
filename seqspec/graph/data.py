"""Frozen dataclasses that are cheap to define: a check defines sixty of them and makes thousands of objects."""

from __future__ import annotations

from dataclasses import Field, FrozenInstanceError, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

Made = TypeVar("Made")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def primitive(cls: type[Made]) -> type[Made]:
    """Makes a subclass of `Data` a frozen dataclass, generating only its `__init__`.

    The other methods are inherited from `Data`: `dataclass(frozen=True)` would generate six methods per class, which
    takes a sixth of the time of `seqspec check`.
    """
    return dataclass(eq=False, repr=False)(cls)


class Data:
    """The base of every `primitive` class: attributes are plain data, compared by value, and each is set once."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    beside: ClassVar[frozenset[str]] = frozenset()
    """Attributes that equality and hash ignore."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((type(self), *self._compared().values()))

    def _compared(self) -> dict[str, Any]:
        if not self.beside:
            return vars(self)
        return {name: value for name, value in vars(self).items() if name not in self.beside}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __setattr__(self, name: str, value: object) -> None:
        if self.__dict__.setdefault(name, value) is not value:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
