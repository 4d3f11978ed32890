"""`--set decoder.layers[0].repeat=2`: values merged over a spec from the command line.

All expressions of a run form one pseudo file named `--set`, one expression per line, so that errors
show them like any other source.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from seqspec.diagnostics import Diagnostic, Related, Report, Span, did_you_mean, escape, quoted

from .compose import Budget, Stop, compose
from .limits import MAX_DEPTH
from .merging import bare_kind, merge
from .node import At, Entry, Node, mapping, sequence
from .text import check

FILE = "--set"
_EXAMPLE = "write a path such as `decoder.layers[0].repeat=2`"
_PART = re.compile(r"(?:^|\.)(?P<name>[^.\[\]=\s]+)|\[(?P<index>[0-9]{1,9})\]")


@dataclass(frozen=True)
class Override:
    """A parsed expression: the parts of its key, each with its place, and the value."""

    parts: tuple[tuple[str | int, Node], ...]
    value: Node


class _Bad(Exception):
    """An override that does not fit the document."""

    def __init__(self, code: str, message: str, at: Node, hint: str | None, on: Node) -> None:
        super().__init__(code)
        related = (Related("this is the value", *on.place),) if on.file != FILE else ()
        self.diagnostic = Diagnostic(code, message, *at.place, hint=hint, related=related)


def apply(root: Node, expressions: Sequence[str], budget: Budget, report: Report) -> Node:
    """The document with each expression merged over it, in order. Problems go to the report."""
    line = 0
    for expression in expressions:
        override = _parse(expression, line, budget, report)
        line += 1 + expression.count("\n")
        if override is None:
            continue
        try:
            root = _set(root, override, 0)
        except _Bad as error:
            report.add(error.diagnostic)
    return root


def _parse(expression: str, line: int, budget: Budget, report: Report) -> Override | None:
    whole = Span(line + 1, 1, line + 1, len(expression.partition("\n")[0]) + 1)
    problem = check(expression, FILE)
    if problem is not None:
        report.add(problem.replace(span=whole))
        return None
    key, equals, value = expression.partition("=")
    parts = _parts(key, line)
    if not equals or parts is None:
        message = f"{quoted(expression)} is not KEY=VALUE"
        report.add(Diagnostic("SEQ040", message, FILE, whole, hint=_EXAMPLE))
        return None
    at = Span(line + 1, len(key) + 2, line + 1, len(key) + 3)
    if not value.strip():
        message = f"{quoted(key)} is set to nothing"
        report.add(Diagnostic("SEQ004", message, FILE, at, hint="write a value after the `=`"))
        return None
    if parts[0][0] == "extends":
        hint = "write it in the spec"
        report.add(Diagnostic("SEQ040", "`extends` cannot be set", FILE, whole, hint=hint))
        return None
    # The padding makes every mark of the value match its place in the pseudo file.
    padded = "\n" * line + " " * (len(key) + 1) + value
    try:
        node = compose(padded, FILE, budget, report, called=key)
    except Stop:
        return None
    if isinstance(node.value, (dict, list)) and value.lstrip()[0] not in "[{":
        hint = "write mappings and lists in brackets, `{key: value}` and `[value]`"
        report.add(Diagnostic("SEQ040", "the value is not in brackets", FILE, at, hint=hint))
        return None
    return Override(parts, node)


def _parts(key: str, line: int) -> tuple[tuple[str | int, Node], ...] | None:
    found: list[tuple[str | int, Node]] = []
    position = 0
    while position < len(key):
        match = _PART.match(key, position)
        if match is None:
            return None
        which = "name" if match["name"] is not None else "index"
        part = match["name"] if which == "name" else int(match["index"])
        place = Node(match[which], FILE, At(line, match.start(which)), At(line, match.end(which)))
        found.append((part, place))
        position = match.end()
    too_long = len(found) > MAX_DEPTH
    return None if too_long or not found or isinstance(found[0][0], int) else tuple(found)


def _set(node: Node, override: Override, depth: int) -> Node:
    """A copy of the node with the override's value merged in at `parts[depth:]`."""
    if depth == len(override.parts):
        return merge(node, override.value)
    part, at = override.parts[depth]
    if isinstance(part, int):
        return _set_item(node, override, depth, part, at)
    if isinstance(node.value, str) and depth > 0:
        node = bare_kind(node)
    if not isinstance(node.value, dict):
        message = f"{_name(override, depth)} is {_what(node)} and has no {quoted(part)}"
        is_item = isinstance(node.value, list) and part.isdecimal()
        hint = f"write `{override.parts[depth - 1][0]}[{part}]`" if is_item else None
        raise _Bad("SEQ042", message, at, hint, node)
    under = node.value.get(part)
    if under is None:
        entry = Entry(at, _build(override, depth + 1, node))
    else:
        entry = Entry(under.key, _set(under.value, override, depth + 1))
    return mapping(node.value | {part: entry}, like=node)


def _set_item(node: Node, override: Override, depth: int, index: int, at: Node) -> Node:
    name = _name(override, depth)
    if not isinstance(node.value, list):
        raise _Bad("SEQ042", f"{name} is {_what(node)} and has no items", at, None, node)
    count = len(node.value)
    if index >= count:
        raise _Bad("SEQ041", f"{name} has {_items(count)} and no item {index}", at, _run(override, depth, count), node)
    items = list(node.value)
    items[index] = _set(items[index], override, depth + 1)
    return sequence(items, like=node)


def _items(count: int) -> str:
    return ("no items", "one item")[count] if count < 2 else f"{count} items"


def _run(override: Override, depth: int, count: int) -> str:
    """The hint that says which indices a list has."""
    name = override.parts[depth - 1][0]
    if count < 2:
        return f"it is `{name}[0]`" if count else "the list is empty"
    return f"they run from `{name}[0]` to `{name}[{count - 1}]`"


def _build(override: Override, depth: int, parent: Node) -> Node:
    """Mappings for the parts of a key that the document does not have yet."""
    if depth == len(override.parts):
        return override.value
    part, at = override.parts[depth]
    if isinstance(part, int):
        missing = str(override.parts[depth - 1][0])
        known = parent.value if isinstance(parent.value, dict) else {}
        message = f"{_name(override, depth)} does not exist and has no item {part}"
        raise _Bad("SEQ041", message, at, did_you_mean(missing, known, what="known"), parent)
    inner = _build(override, depth + 1, at)
    return mapping({part: Entry(at, inner)}, like=at)


def _name(override: Override, depth: int) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part, _ in override.parts[:depth])
    return f"`{escape(text.lstrip('.'))}`" if text else "the spec"


def _what(node: Node) -> str:
    value = node.value
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return f"the text {quoted(value)}" if isinstance(value, str) else quoted(value)
