"""Findings for people: the sentence, the place, the lines with carets, the hint."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import IO

from seqspec.diagnostics.diagnostic import Diagnostic
from seqspec.diagnostics.escape import escape
from seqspec.diagnostics.report import Report

from .excerpt import Mark, draw, split_lines

_STYLES = {"error": "1;31", "warning": "1;33", "gutter": "1;34", "strong": "1", "help": "1;36"}


class Paint:
    """Wraps text in a terminal style, or leaves it alone."""

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.colour and text else text


def wants_colour(stream: IO[str]) -> bool:
    """Whether to colour output: NO_COLOR wins over FORCE_COLOR, which wins over what the stream is."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def render(report: Report, sources: Mapping[str, str], *, colour: bool = False) -> str:
    """Every finding with its excerpt, then a line that counts them."""
    return render_all(tuple(report), sources, hidden=report.hidden, colour=colour)


def render_all(
    diagnostics: Sequence[Diagnostic],
    sources: Mapping[str, str],
    *,
    hidden: int = 0,
    colour: bool = False,
) -> str:
    """Every finding with its excerpt, then a line that counts them where there are several."""
    paint = Paint(colour)
    # Split each file once, not once per finding.
    lines = {file: split_lines(text) for file, text in sources.items()}
    parts = [_diagnostic(diagnostic, lines, paint) for diagnostic in diagnostics]
    if len(diagnostics) + hidden > 1:
        parts.append(summary(diagnostics, hidden) + "\n")
    return "\n".join(parts)


def _diagnostic(diagnostic: Diagnostic, lines: Mapping[str, list[str]], paint: Paint) -> str:
    severity = diagnostic.severity
    head = paint(f"{severity}[{diagnostic.code}]", severity)
    out = [f"{head}: {paint(diagnostic.message, 'strong')}"]
    if diagnostic.file:
        here = Mark(diagnostic.file, diagnostic.span, diagnostic.label or "", primary=True)
        others = [Mark(r.file, r.span, r.message, primary=False) for r in diagnostic.related]
        out.extend(draw(here, others, lines, paint))
    elif diagnostic.path:
        out.append(f"  {paint('-->', 'gutter')} {diagnostic.path}")
    if diagnostic.hint:
        out.append(f"  {paint('=', 'gutter')} {paint('help', 'help')}: {diagnostic.hint}")
    return "\n".join(out) + "\n"


def summary(diagnostics: Iterable[Diagnostic], hidden: int) -> str:
    """`Found 3 errors and 1 warning in 2 files.`"""
    found = list(diagnostics)
    errors = sum(diagnostic.severity == "error" for diagnostic in found)
    counts = [_count(n, word) for n, word in ((errors, "error"), (len(found) - errors, "warning")) if n]
    files = len({escape(diagnostic.file) for diagnostic in found if diagnostic.file})
    place = f" in {_count(files, 'file')}" if files else ""
    more = f" {hidden} more not shown." if hidden else ""
    return f"Found {' and '.join(counts)}{place}.{more}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
