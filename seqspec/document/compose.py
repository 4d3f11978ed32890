"""Builds nodes from parse events, and applies the language's rules about YAML itself.

Findings that leave the rest readable (duplicate keys, nulls, tags) are collected, so that one run
shows all of them; broken syntax or an exceeded limit stops at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from seqspec.diagnostics import Diagnostic, Related, Report, did_you_mean, format_path, quoted

from .limits import MAX_ALIASES, MAX_DEPTH, MAX_NODES
from .node import Entry, Mark, Node, Place
from .parser import events, syntax_error
from .scalars import NULL, Null, NumberRange, Scalar, resolve
from .text import place_at

# After this many findings the rest of the document is not read; nobody would read them either.
_MAX_FINDINGS = 500
_INIT = "`seqspec init` writes a spec to start from"


class Stop(Exception):
    """The document cannot be read any further. The report holds the findings so far."""


@dataclass
class Budget:
    """How many values and aliases all files of one spec may still hold together."""

    nodes: int = MAX_NODES
    aliases: int = MAX_ALIASES


def compose(
    text: str, file: str, budget: Budget, report: Report, *, pure: bool = False, called: str = "the document"
) -> Node:
    """The root node of the one document in the text. Raises `Stop` when it cannot be read to its end.

    `called` is what findings call the outermost value; `pure` uses PyYAML's own parser.
    """
    return _Composer(text, file, budget, report, pure, called).document()


class _Composer:
    def __init__(self, text: str, file: str, budget: Budget, report: Report, pure: bool, called: str) -> None:
        self.text = text
        self.file = file
        self.budget = budget
        self.report = report
        self.called = called
        self.source = events(text, pure=pure)
        self.anchors: dict[str, Node | None] = {}  # None while the anchored value is still open
        self.anchored_at: dict[str, Any] = {}  # the event that opened it
        self.path: list[str | int] = []
        self.end: Mark | None = None  # where the last value ended; a block's own end mark is the next token

    # Reading

    def document(self) -> Node:
        self.next()  # the start of the stream
        start = self.next()
        if isinstance(start, StreamEndEvent):
            self.empty()
        if isinstance(start, DocumentStartEvent) and start.version not in (None, (1, 2)):
            self.stop("SEQ021", "specs are YAML 1.2", start, hint="delete the `%YAML` line")
        root = self.node(self.next(), depth=0)
        self.next()  # the end of the document
        behind = self.next()
        if not isinstance(behind, StreamEndEvent):
            self.stop("SEQ010", "a second document starts here", behind, hint="one file is one spec")
        return root

    def next(self) -> Any:
        try:
            return self.source.get_event()
        except yaml.MarkedYAMLError as error:
            self.report.add(syntax_error(error, self.text, self.file))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            # In some PyYAML versions, bad escapes in quoted text reach Python's own decoders.
            self.report.add(Diagnostic("SEQ001", f"not valid YAML: {error}", self.file))
        raise Stop

    def node(self, event: Any, depth: int) -> Node:
        self.spend(1, event)
        if isinstance(event, AliasEvent):
            return self.alias(event, depth)
        anchor = event.anchor
        if anchor is not None:
            self.open_anchor(anchor, event)
        if event.tag is not None:
            message = f"the tag {quoted(event.tag)} is not accepted"
            self.find("SEQ008", message, event, hint="write the value alone; quotes make it text")
        if isinstance(event, ScalarEvent):
            node = self.scalar(event)
        else:
            if depth >= MAX_DEPTH:
                self.stop("SEQ013", f"nested more than {MAX_DEPTH} levels deep", event)
            left = self.budget.nodes
            is_mapping = isinstance(event, MappingStartEvent)
            node = self.mapping(event, depth) if is_mapping else self.sequence(event, depth)
            node.size = 1 + left - self.budget.nodes
        if anchor is not None:
            self.anchors[anchor] = node
        return node

    # Scalars, lists, mappings

    def scalar(self, event: Any) -> Node:
        self.end = event.end_mark
        value: Scalar | Null = event.value
        if event.implicit[0]:
            try:
                value = resolve(event.value)
            except NumberRange as error:
                self.find("SEQ020", str(error), event, hint="put it in quotes if it is text")
        if value is NULL:
            value = self.null(event)
        assert not isinstance(value, Null)
        return self.leaf(value, event)

    def null(self, event: Any) -> str:
        if not self.path and not event.value:
            self.empty()
        part = self.path[-1] if self.path else self.called
        name = quoted(part) if isinstance(part, str) else "this item"
        message = f"{name} is null" if event.value else f"{name} has no value"
        self.find("SEQ004", message, event, hint="write a value, or leave the key out")
        return ""

    def leaf(self, value: Scalar, event: Any) -> Node:
        return Node(value, self.file, event.start_mark, event.end_mark)

    def sequence(self, event: Any, depth: int) -> Node:
        items: list[Node] = []
        height = 0
        self.path.append(0)
        while not isinstance(inner := self.next(), SequenceEndEvent):
            self.path[-1] = len(items)
            item = self.node(inner, depth + 1)
            height = max(height, item.height)
            items.append(item)
        self.path.pop()
        return Node(items, self.file, event.start_mark, self.close(event, inner), height + 1)

    def mapping(self, event: Any, depth: int) -> Node:
        entries: dict[str, Entry] = {}
        merged: Entry | None = None
        height = 0
        while not isinstance(inner := self.next(), MappingEndEvent):
            key = self.key(inner, depth)
            name = str(key.value)
            is_merge = name == "<<" and isinstance(inner, ScalarEvent) and inner.implicit[0]
            self.path.append(name)
            earlier = merged if is_merge else entries.get(name)
            if earlier is not None:
                self.duplicate(name, key, earlier)
            value = self.node(self.next(), depth + 1)
            self.path.pop()
            height = max(height, value.height)
            if earlier is None and is_merge:
                merged = Entry(key, value)
            elif earlier is None:
                entries[name] = Entry(key, value)
        if merged is not None:
            entries = self.merge(merged) | entries
        return Node(entries, self.file, event.start_mark, self.close(event, inner), height + 1)

    def key(self, event: Any, depth: int) -> Node:
        """A key is always text: `1`, `true` and `no` are names here, not values."""
        if not isinstance(event, ScalarEvent):
            self.stop("SEQ009", "a key must be a plain word", event)
        self.spend(1, event)
        if event.tag is not None:
            self.find("SEQ008", f"the tag {quoted(event.tag)} is not accepted", event)
        self.end = event.end_mark
        key = self.leaf(event.value, event)
        if event.anchor is not None:
            self.open_anchor(event.anchor, event)
            self.anchors[event.anchor] = key
        return key

    def duplicate(self, name: str, key: Node, earlier: Entry) -> None:
        file, first = earlier.key.place
        second = key.place.span.line
        lines = f"line {second}" if first.line == second else f"lines {first.line} and {second}"
        self.add(
            Diagnostic(
                "SEQ003",
                f"the key {quoted(name)} is given twice, on {lines}",
                *key.place,
                path=format_path(self.path),
                hint="delete one of the two",
                related=(Related("first given here", file, first),),
            )
        )

    def merge(self, merged: Entry) -> dict[str, Entry]:
        """The keys that `<<` brings: those of a mapping, or of a list of them, in which earlier ones win."""
        sources = merged.value.value if isinstance(merged.value.value, list) else [merged.value]
        entries: dict[str, Entry] = {}
        for source in reversed(sources):
            if isinstance(source.value, dict):
                entries |= source.value
            else:
                message = "`<<` needs a mapping or a list of mappings"
                self.add(Diagnostic("SEQ019", message, *source.place))
        return entries

    def close(self, start: Any, end: Any) -> Mark:
        """Where a list or mapping ends: at its bracket, or after its last value in block style."""
        if start.flow_style or self.end is None:
            self.end = end.end_mark
        return self.end

    # Anchors

    def open_anchor(self, anchor: str, event: Any) -> None:
        if anchor in self.anchored_at:
            first = Related("first used here", *self.place(self.anchored_at[anchor]))
            message = f"the anchor {quoted(anchor)} is used twice"
            self.find("SEQ018", message, event, related=(first,))
        self.anchored_at[anchor] = event
        self.anchors[anchor] = None

    def alias(self, event: Any, depth: int) -> Node:
        self.budget.aliases -= 1
        if self.budget.aliases < 0:
            self.stop("SEQ015", f"more than {MAX_ALIASES} aliases", event)
        self.end = event.end_mark
        name = event.anchor
        if name not in self.anchors:
            hint = did_you_mean(name, self.anchors, what="anchors so far")
            self.find("SEQ017", f"there is no anchor {quoted(name)} above", event, hint=hint)
            return self.leaf("", event)
        node = self.anchors[name]
        if node is None:
            first = Related("the anchor is here", *self.place(self.anchored_at[name]))
            message = f"the anchor {quoted(name)} contains itself"
            self.stop("SEQ016", message, event, related=(first,))
        if depth + node.height > MAX_DEPTH:
            self.stop("SEQ013", f"nested more than {MAX_DEPTH} levels deep by an alias", event)
        self.spend(node.size - 1, event)
        return node

    # Findings

    def spend(self, nodes: int, event: Any) -> None:
        self.budget.nodes -= nodes
        if self.budget.nodes < 0:
            hint = "write a repeated part once and say `repeat`"
            self.stop("SEQ014", f"more than {MAX_NODES:,} values", event, hint=hint)

    def place(self, event: Any) -> Place:
        """The place of an event. An empty value at the very end is placed right after the last text."""
        written = len(self.text.rstrip(" \r\n"))
        if event.start_mark.index >= written:
            return Place(self.file, place_at(self.text, written))
        return self.leaf("", event).place

    def find(self, code: str, message: str, event: Any, **more: Any) -> None:
        path = format_path(self.path)
        self.add(Diagnostic(code, message, *self.place(event), path=path, **more))

    def add(self, diagnostic: Diagnostic) -> None:
        self.report.add(diagnostic)
        if len(self.report) >= _MAX_FINDINGS:
            raise Stop

    def empty(self) -> NoReturn:
        self.report.add(Diagnostic("SEQ002", "the file holds no document", self.file, hint=_INIT))
        raise Stop

    def stop(self, code: str, message: str, event: Any, **more: Any) -> NoReturn:
        self.find(code, message, event, **more)
        raise Stop
