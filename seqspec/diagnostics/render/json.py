"""Findings as JSON for other programs. ASCII only, so that no byte of it can control a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping

from seqspec.diagnostics.codes import CODES
from seqspec.diagnostics.diagnostic import Diagnostic, Fix, Related, Span
from seqspec.diagnostics.report import Report

VERSION = 1


def render(report: Report, sources: Mapping[str, str]) -> str:
    """{"version": 1, "diagnostics": [...], "hidden": n}; `sources` is not needed."""
    document = {
        "version": VERSION,
        "diagnostics": [_diagnostic(diagnostic) for diagnostic in report],
        "hidden": report.hidden,
    }
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _diagnostic(diagnostic: Diagnostic) -> dict[str, object]:
    return {
        "code": diagnostic.code,
        "slug": diagnostic.slug,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "title": CODES[diagnostic.code].title,
        "file": diagnostic.file or None,
        **(_span(diagnostic.span) if diagnostic.file else {}),
        "path": diagnostic.path or None,
        "hint": diagnostic.hint,
        "related": [_related(related) for related in diagnostic.related],
        "fix": _fix(diagnostic.fix) if diagnostic.fix else None,
    }


def _span(span: Span) -> dict[str, object]:
    return {
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }


def _related(related: Related) -> dict[str, object]:
    return {"message": related.message, "file": related.file, **_span(related.span)}


def _fix(fix: Fix) -> dict[str, object]:
    return {"text": fix.text, "file": fix.file, **_span(fix.span)}
