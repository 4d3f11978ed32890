"""Excerpts of a source with carets under the place in question.

Columns count code points but terminals count cells, and hidden characters are shown as escapes, so
carets are placed by the width of what is shown. Long lines are cut around the place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seqspec.diagnostics.diagnostic import START, Span
from seqspec.diagnostics.escape import escape, width

Painter = Callable[[str, str], str]
_BREAK = re.compile(r"\r\n|\r|\n")
# How many code points of a long line are shown before and after the place.
_BEFORE, _AFTER = 60, 100


@dataclass(frozen=True)
class Mark:
    """A place to underline: with carets for the finding itself, with dashes for related places."""

    file: str
    span: Span
    label: str
    primary: bool


def split_lines(text: str) -> list[str]:
    """Lines as YAML counts them: only CR, LF and CR LF end one (str.splitlines knows ten more)."""
    return _BREAK.split(text)


def draw(primary: Mark, others: Sequence[Mark], lines: Mapping[str, list[str]], paint: Painter) -> list[str]:
    """An excerpt of the finding's own file, then one of each related file."""
    files = list(dict.fromkeys([primary.file, *(mark.file for mark in others)]))
    marks = [primary, *others]
    numbers = [mark.span.line for mark in marks]
    gutter = len(str(max(numbers)))
    out: list[str] = []
    for file in files:
        here = sorted((mark for mark in marks if mark.file == file), key=lambda mark: mark.span)
        top = primary if file == primary.file else here[0]
        arrow = "-->" if top.primary else ":::"
        # a finding about a file as a whole has no line
        at = "" if top.span == START and file not in lines else f":{top.span.line}:{top.span.column}"
        place = f"{escape(file)}{at}"
        out.append(f"{' ' * gutter}{paint(arrow, 'gutter')} {place}")
        out.extend(_draw_file(here, lines.get(file, []), gutter, paint))
    return out


def _draw_file(marks: Sequence[Mark], lines: list[str], gutter: int, paint: Painter) -> list[str]:
    known = [mark for mark in marks if mark.span.line <= len(lines)]
    if not known or not any(lines[mark.span.line - 1].strip() for mark in known):
        # Nothing to show, as for a file that could not be read; keep the labels.
        return [f"{' ' * gutter} {paint('=', 'gutter')} {mark.label}" for mark in marks if mark.label]
    bar = paint("|", "gutter")
    out = [f"{' ' * gutter} {bar}"]
    previous = None
    for mark in known:
        line = mark.span.line
        if previous is not None and line > previous + 1:
            out.append(paint("...", "gutter"))
        shown, indent, length = _cut(lines[line - 1], mark.span)
        if line != previous:
            out.append(f"{paint(str(line).rjust(gutter), 'gutter')} {bar} {shown}".rstrip())
        caret = ("^" if mark.primary else "-") * length
        style = "error" if mark.primary else "gutter"
        note = paint(f"{caret} {mark.label}".rstrip(), style)
        out.append(f"{' ' * gutter} {bar} {' ' * indent}{note}")
        previous = line
    return out


def _cut(line: str, span: Span) -> tuple[str, int, int]:
    """The line as shown, the cells before the place, and the cells that the place covers."""
    start = min(span.column - 1, len(line))
    # A place of several lines is underlined to the end of its first line.
    end = span.end_column - 1 if span.end_line == span.line else len(line.rstrip())
    end = max(start, min(end, len(line)))
    left = max(0, start - _BEFORE) if start > _BEFORE + 20 else 0
    right = start + _AFTER if len(line) > start + _AFTER + 20 else len(line)
    before = ("…" if left else "") + _show(line[left:start])
    middle = _show(line[start : min(end, right)])
    after = _show(line[min(end, right) : right]) + ("…" if right < len(line) else "")
    return before + middle + after, width(before), max(1, width(middle))


def _show(text: str) -> str:
    """A tab takes one cell, so that carets stay under their place whatever the tab width."""
    return escape(text.replace("\t", " "))
