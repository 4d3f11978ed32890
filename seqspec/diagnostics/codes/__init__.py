"""The table of every diagnostic: one `Code` per kind of finding, grouped by hundreds.

    0xx the file and its YAML    1xx the shape of the spec    2xx what it means
    3xx graph and shapes         4xx compile and export       5xx run time

To add one, take the next free number in the file of its hundred. A number is never reused for
something else, because people search for it, ignore it and link to it.
"""

from __future__ import annotations

from ._code import Code, Severity
from .document import DOCUMENT
from .graph import GRAPH
from .meaning import MEANING
from .runtime import RUNTIME
from .shape import SHAPE
from .targets import TARGETS

__all__ = ["CODES", "Code", "Severity", "find"]

CODES: dict[str, Code] = DOCUMENT | SHAPE | MEANING | GRAPH | TARGETS | RUNTIME


def find(text: str) -> tuple[str, Code] | None:
    """The entry named by a number (`SEQ201`, `seq201`, `201`) or by a slug (`unknown-field`)."""
    wanted = text.strip()
    number = wanted.upper()
    if number in CODES:
        return number, CODES[number]
    if wanted.isdecimal() and f"SEQ{wanted.zfill(3)}" in CODES:
        number = f"SEQ{wanted.zfill(3)}"
        return number, CODES[number]
    slug = wanted.lower().replace("_", "-")
    return next(((code, entry) for code, entry in CODES.items() if entry.slug == slug), None)
