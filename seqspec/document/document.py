"""A spec as written: plain values, and the place of each key and value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from seqspec.diagnostics import Diagnostic, Fix, Related, format_path

from .node import Node, Path, Place, Plain, plain


class Located(NamedTuple):
    """A validator's location in the document: `path` is the part that exists, `rest` the part that does not."""

    path: Path
    rest: Path
    place: Place
    key: Place | None


@dataclass(frozen=True)
class Document:
    """A parsed spec. `file` is the outermost file; `sources` has the text of every file that places refer to."""

    root: Node
    file: str
    sources: Mapping[str, str]

    @cached_property
    def data(self) -> dict[str, Plain]:
        """The spec as dicts, lists, strings, ints, floats and booleans, with `extends` resolved."""
        value = plain(self.root)
        assert isinstance(value, dict)
        return value

    def span(self, path: Sequence[str | int], key: bool = False) -> Place:
        """The place of the value at a path, or of its nearest existing parent. With `key`, the place of its key.

        The root and items of a list have no key; for these, `key=True` gives the value's place.
        """
        node, key_node, _ = self._walk(path)
        return key_node.place if key and key_node is not None else node.place

    def has(self, path: Sequence[str | int]) -> bool:
        """Whether the document has a value at exactly this path."""
        return self._walk(path)[2] == len(path)

    def locate(self, loc: Iterable[str | int]) -> Located:
        """Finds a pydantic `loc` in the document. Union tags in it are skipped, see `_is_tag`."""
        parts = tuple(loc)
        node, key, path = self.root, None, []
        position, reached = 0, 0
        entered = True  # a tag comes directly after the value that it is the tag of, and only once
        while position < len(parts):
            part = parts[position]
            position += 1
            if entered and _is_tag(node, part):
                entered, reached = False, position
                continue
            child = node.child(part)
            if child is None:
                continue  # the tag of another union, or missing if nothing after it is found
            node, key = (child, None) if isinstance(child, Node) else (child.value, child.key)
            path.append(part)
            entered, reached = True, position
        place_of_key = key.place if key is not None else None
        return Located(tuple(path), parts[reached:], node.place, place_of_key)

    def diagnostic(
        self,
        code: str,
        message: str,
        path: Sequence[str | int],
        *,
        key: bool = False,
        hint: str | None = None,
        label: str | None = None,
        related: Sequence[tuple[str, Sequence[str | int]]] = (),
        replacement: str | None = None,
    ) -> Diagnostic:
        """A finding at a path. `related` are (message, path) pairs; `replacement` is the text of a fix."""
        file, span = self.span(path, key)
        return Diagnostic(
            code,
            message,
            file,
            span,
            path=format_path(path),
            hint=hint,
            label=label,
            related=tuple(Related(text, *self.span(other)) for text, other in related),
            fix=None if replacement is None else Fix(replacement, file, span),
        )

    def _walk(self, path: Sequence[str | int]) -> tuple[Node, Node | None, int]:
        """The deepest existing node on the path, its key, and how many parts of the path lead there."""
        node, key = self.root, None
        for depth, part in enumerate(path):
            child = node.child(part)
            if child is None:
                return node, key, depth
            node, key = (child, None) if isinstance(child, Node) else (child.value, child.key)
        return node, key, len(path)


def _is_tag(node: Node, part: str | int) -> bool:
    """Whether this part of a `loc` is the tag of the union at this node, rather than a key of it.

    pydantic puts the value of `kind` into a `loc` before the fields of the chosen class. A bare
    word stands for its kind, so it is its own tag. No class may have a field of the same name as
    its kind.
    """
    return isinstance(part, str) and part in (node.kind(), node.value)
