"""Findings as GitHub Actions annotations: `::error file=…,line=…::message`.

GitHub shows ten errors and ten warnings per step, so errors come first and the last line counts all.
Escaping follows actions/toolkit: `%`, CR and LF in messages, also `:` and `,` in properties.
"""

from __future__ import annotations

from collections.abc import Mapping

from seqspec.diagnostics.diagnostic import Diagnostic
from seqspec.diagnostics.escape import escape
from seqspec.diagnostics.report import Report

from .text import summary


def render(report: Report, sources: Mapping[str, str]) -> str:
    """One line per finding, then the count as plain text."""
    found = sorted(report, key=lambda diagnostic: diagnostic.severity != "error")
    lines = [_annotation(diagnostic) for diagnostic in found]
    if lines:
        lines.append(summary(found, report.hidden))
    return "".join(f"{line}\n" for line in lines)


def _annotation(diagnostic: Diagnostic) -> str:
    properties = {"title": f"seqspec {diagnostic.code} ({diagnostic.slug})"}
    message = diagnostic.message + (f"; {diagnostic.hint}" if diagnostic.hint else "")
    if is_real_file(diagnostic.file):
        properties["file"] = diagnostic.file
        properties["line"] = str(diagnostic.line)
        properties["col"] = str(diagnostic.column)
        properties["endLine"] = str(diagnostic.end_line)
        properties["endColumn"] = str(diagnostic.end_column)
    elif diagnostic.file:
        message = f"{diagnostic.file}:{diagnostic.line}:{diagnostic.column}: {message}"
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{diagnostic.severity} {written}::{_data(message)}"


def is_real_file(file: str) -> bool:
    """Whether GitHub can open the file: not `--set`, not `<text>`, and not a finding without a place."""
    return bool(file) and not file.startswith(("--", "<"))


def _data(text: str) -> str:
    return escape(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
