"""Parses YAML text into events: with libyaml where available, else with PyYAML's own parser.

Only events are taken from PyYAML. Its composer resolves scalars by YAML 1.1, keeps the last of two
equal keys and shares aliased values; compose.py does that part by our rules.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import yaml
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from seqspec.diagnostics import Diagnostic, Related, Span, escape

from .limits import MAX_DEPTH
from .node import Mark
from .text import place_at

try:
    from yaml._yaml import CParser  # as yaml.cyaml does, which does not export it
except ImportError:  # a PyYAML built without libyaml
    CParser = None  # type: ignore[assignment,misc]

HAVE_LIBYAML = CParser is not None


class EventSource(Protocol):
    """The interface of both parsers."""

    def get_event(self) -> Any: ...


class _PurePython(Reader, Scanner, Parser):
    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)


def events(text: str, *, pure: bool = False) -> EventSource:
    """The parse events of a text that has passed `text.check`. `pure` avoids libyaml."""
    if pure or not HAVE_LIBYAML:
        return _PurePython(text)
    return CParser(text)


_QUOTE = "put the text in quotes"
# A part of what both parsers say, our message, and the hint.
_EXPLAINED: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        "a second `: ` cannot stand here",
        "put the value in quotes, or start the mapping on a line of its own, indented",
    ),
    ("',' or ']'", "the list lacks a `,` or its closing `]`", "close it with `]`"),
    ("',' or '}'", "the mapping lacks a `,` or its closing `}`", "close it with `}`"),
    ("unexpected end of stream", "the quoted text is never closed", "add the closing quote"),
    (
        "expected key",
        "the line is indented differently from the lines before it",
        "give the keys of one mapping the same indentation",
    ),
    (
        "expected <block end>",
        "the line is indented differently from the lines before it",
        "give the keys of one mapping the same indentation",
    ),
    (
        "expected '-'",
        "a list and a mapping are mixed at one indentation",
        "start every item with `- `, or none",
    ),
    ("could not find expected ':'", "a key lacks its `:`", "write `key: value`"),
    ("expected ':'", "a key lacks its `:`", "write `key: value`"),
)


def syntax_error(error: yaml.MarkedYAMLError, text: str, file: str) -> Diagnostic:
    """The parser's error in our own words, at the place where it stopped."""
    problem = error.problem or "not valid YAML"
    mark = _mark(error, text)
    character = text[mark.offset] if mark.offset < len(text) else ""
    code, message, hint = "SEQ001", f"not valid YAML: {problem}", None
    if (character == "\t" and "start any token" in problem) or "tab character" in problem:
        code, message, hint = "SEQ007", "a tab indents this line", "indent with spaces"
    elif "incompatible YAML" in problem or "YAML version" in problem:
        code, message, hint = "SEQ021", "specs are YAML 1.2", "delete the `%YAML` line"
    elif "nesting depth" in problem:  # libyaml's own limit, reached while it looks ahead
        code, message = "SEQ013", f"nested more than {MAX_DEPTH} levels deep"
    elif "tag handle" in problem:
        code, message, hint = "SEQ008", "tags are not accepted", _QUOTE
    elif "start any token" in problem:
        message, hint = f"a value cannot start with `{escape(character)}`", _QUOTE
    else:
        for needle, explained, advice in _EXPLAINED:
            if needle in problem:
                message, hint = explained, advice
                break
    return Diagnostic(code, message, file, _span(mark), hint=hint, related=_opened(error, mark, file))


class _Stopped(NamedTuple):
    offset: int
    line: int
    column: int


def _mark(error: yaml.MarkedYAMLError, text: str) -> _Stopped:
    """Where the parser stopped. In the empty lines at the end, the place right after the last text."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return _Stopped(0, 0, 0)
    written = text.rstrip(" \n\r")
    if mark.index < len(written):
        return _Stopped(mark.index, mark.line, mark.column)
    place = place_at(text, len(written))
    return _Stopped(len(text), place.line - 1, place.column - 1)


def _opened(error: yaml.MarkedYAMLError, mark: Mark, file: str) -> tuple[Related, ...]:
    context = error.context_mark
    if context is None or (context.line, context.column) == (mark.line, mark.column):
        return ()
    return (Related("in what starts here", file, _span(context)),)


def _span(mark: Mark) -> Span:
    return Span(mark.line + 1, mark.column + 1, mark.line + 1, mark.column + 2)
