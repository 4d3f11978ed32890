"""What the table holds for each code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Code:
    """`explanation` is paragraphs for `seqspec explain`; `bad` and `good` show the mistake mended.

    The examples are YAML for codes below 300 and command lines or Python above.
    """

    slug: str
    title: str
    explanation: str
    bad: str = ""
    good: str = ""
    severity: Severity = "error"
