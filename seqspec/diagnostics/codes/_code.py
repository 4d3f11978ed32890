"""What the table holds for each code."""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["error", "warning"]


class Code(NamedTuple):
    """`explanation` is paragraphs for `seqspec explain`; `bad` and `good` show the mistake mended.

    The examples are YAML for codes below 300 and command lines or Python above.
    """

    slug: str
    title: str
    explanation: str
    bad: str = ""
    good: str = ""
    severity: Severity = "error"
