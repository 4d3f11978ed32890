"""A parsed document as a tree in which every key and value knows where it was written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from seqspec.diagnostics import Span

from .scalars import Scalar

Path: TypeAlias = tuple[str | int, ...]
Plain: TypeAlias = "Scalar | list[Plain] | dict[str, Plain]"


class Mark(Protocol):
    """A place as PyYAML gives it; line and column count from 0."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class At(NamedTuple):
    """A mark of our own, for values that do not come from the parser."""

    line: int
    column: int


class Place(NamedTuple):
    """A span of a file."""

    file: str
    span: Span


@dataclass(slots=True)
class Node:
    """A scalar, a list or a mapping. Aliases share nodes, so a node is never changed once built.

    `height` counts the levels of lists and mappings, this one included; `size` counts the values,
    aliases expanded. (Not frozen: freezing triples the cost of building thousands of them.)
    """

    value: Scalar | list[Node] | dict[str, Entry]
    file: str
    start: Mark
    end: Mark
    height: int = 0
    size: int = 1

    @property
    def place(self) -> Place:
        """The file and span of the value."""
        start, end = self.start, self.end
        return Place(self.file, Span(start.line + 1, start.column + 1, end.line + 1, end.column + 1))

    def child(self, part: str | int) -> Entry | Node | None:
        """The entry at a key or the item at an index, or None."""
        value = self.value
        if isinstance(value, dict):
            return value.get(part) if isinstance(part, str) else None
        if isinstance(value, list) and isinstance(part, int) and not isinstance(part, bool):
            return value[part] if 0 <= part < len(value) else None
        return None

    def kind(self) -> str | None:
        """The text under `kind`, if this is a mapping that has one."""
        if isinstance(self.value, dict):
            entry = self.value.get("kind")
            if entry is not None and isinstance(entry.value.value, str):
                return entry.value.value
        return None


class Entry(NamedTuple):
    """A key and its value."""

    key: Node
    value: Node


def mapping(entries: dict[str, Entry], like: Node) -> Node:
    """A mapping with these entries, at the place of `like`."""
    values = [entry.value for entry in entries.values()]
    return Node(entries, like.file, like.start, like.end, _height(values), _size(values))


def sequence(items: list[Node], like: Node) -> Node:
    """A list of these items, at the place of `like`."""
    return Node(items, like.file, like.start, like.end, _height(items), _size(items))


def _height(values: list[Node]) -> int:
    return 1 + max((value.height for value in values), default=0)


def _size(values: list[Node]) -> int:
    return 1 + sum(value.size for value in values)


def plain(node: Node) -> Plain:
    """The tree without places. Aliased values are copied, so that no part is shared."""
    value = node.value
    if isinstance(value, dict):
        return {key: plain(entry.value) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
