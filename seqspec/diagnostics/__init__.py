"""Diagnostics: what seqspec says when something is wrong, and how it is shown.

Imports nothing of seqspec and nothing but the standard library, so that every part can use it.
"""

from __future__ import annotations

from .codes import CODES, Code, Severity
from .codes import find as find_code
from .diagnostic import START, Diagnostic, Fix, Related, Span, format_path
from .errors import CompileError, RuntimeFault, SeqspecError, SpecError
from .escape import clip, escape, quoted
from .report import MAX_SHOWN, Report
from .suggest import did_you_mean, suggest

__all__ = [
    "CODES",
    "MAX_SHOWN",
    "START",
    "Code",
    "CompileError",
    "Diagnostic",
    "Fix",
    "Related",
    "Report",
    "RuntimeFault",
    "SeqspecError",
    "Severity",
    "Span",
    "SpecError",
    "clip",
    "did_you_mean",
    "escape",
    "find_code",
    "format_path",
    "quoted",
    "suggest",
]
