"""One entry of the table of codes."""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["error", "warning"]


class Code(NamedTuple):
    """A kind of finding. `explanation` is prose for `seqspec explain`; `bad` and `good` show the mistake and its fix.

    The examples are YAML for codes below 300, command lines or Python above.
    """

    slug: str
    title: str
    explanation: str
    bad: str = ""
    good: str = ""
    severity: Severity = "error"
