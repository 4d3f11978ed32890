"""Frozen dataclasses that are cheap to define: a check defines sixty of them and makes thousands of objects."""

from __future__ import annotations

from dataclasses import Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

Made = TypeVar("Made")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def primitive(cls: type[Made]) -> type[Made]:
    """Makes a subclass of `Data` a frozen dataclass, generating only its `__init__`.

    The other methods are inherited from `Data`: `dataclass(frozen=True)` would generate six methods per class, which
    takes a sixth of the time of `seqspec check`.
    """
    made: Any = dataclass(eq=False, repr=False)(cls)
    made._names = tuple(f.name for f in fields(made))
    compared = [name for name in made._names if name not in made.beside]
    made._compared = attrgetter(*compared) if compared else type
    return made  # type: ignore[no-any-return]


class Data:
    """The base of every `primitive` class: attributes are plain data, compared by value, and each is set once."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    beside: ClassVar[frozenset[str]] = frozenset()
    """Attributes that equality and hash ignore."""

    _names: ClassVar[tuple[str, ...]]
    _compared: ClassVar[Any]  # a function of an object: what equality and hash see of it

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and bool(self._compared(self) == self._compared(other))

    def __hash__(self) -> int:
        return hash((type(self), self._compared(self)))

    def but(self, **changed: Any) -> Self:
        """A copy with other values of some attributes; a quick `dataclasses.replace`."""
        made, own = object.__new__(type(self)), self.__dict__
        made.__dict__.update({name: own[name] for name in self._names}, **changed)
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __setattr__(self, name: str, value: object) -> None:
        if self.__dict__.setdefault(name, value) is not value:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
