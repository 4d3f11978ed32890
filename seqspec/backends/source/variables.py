"""The variables of one function. A later value may reuse a name once its value is no longer read."""

from __future__ import annotations

from collections.abc import Container, Mapping

from seqspec.backends.source.names import fresh
from seqspec.graph.ir import Value


class Variables:
    """`last` has the number of the last statement that reads each value; `avoid` holds names to avoid."""

    def __init__(self, arguments: Mapping[Value, str], last: Mapping[Value, float], avoid: Container[str]) -> None:
        self.names: dict[Value, str] = dict(arguments)
        self._bound: dict[str, Value] = {name: value for value, name in arguments.items()}
        self._last, self._avoid = last, avoid
        self._reserved: set[str] = set()

    def reserve(self, word: str) -> str:
        """A name for the whole function."""
        name = fresh(word, _Any(self._avoid, self._reserved, self._bound))
        self._reserved.add(name)
        return name

    def claim(self, word: str, value: Value, at: float) -> str:
        """A name for a value assigned in statement `at`, which no value read later has."""
        self.names[value] = name = self._free(word, at)
        self._bound[name] = value
        return name

    def temporary(self, word: str, at: float) -> str:
        """A name needed only within one statement."""
        name = self._free(word, at)
        self._bound.pop(name, None)
        return name

    def holds(self, value: Value) -> bool:
        """Whether a variable holds this value now."""
        return value in self.names and self._bound.get(self.names[value]) is value

    def current(self) -> list[Value]:
        """The values that variables hold now, in the order in which their names were first used."""
        return list(self._bound.values())

    def _free(self, word: str, at: float) -> str:
        name, number = word, 1
        while name in self._avoid or name in self._reserved or self._alive(name, at):
            number += 1
            name = f"{word}_{number}"
        return name

    def _alive(self, name: str, at: float) -> bool:
        return name in self._bound and self._last.get(self._bound[name], -1) > at


class _Any:
    """The union of containers, without copying them."""

    def __init__(self, *parts: Container[str]) -> None:
        self._parts = parts

    def __contains__(self, name: object) -> bool:
        return any(name in part for part in self._parts)
