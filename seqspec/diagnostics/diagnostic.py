"""One finding: a code, a sentence, a place, and where possible a fix."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from .codes import CODES, Severity
from .escape import clip, escape


class Span(NamedTuple):
    """[start, end) in a text; lines and columns count from 1, columns in code points."""

    line: int
    column: int
    end_line: int
    end_column: int


START = Span(1, 1, 1, 1)


@dataclass(frozen=True, slots=True)
class Related:
    """A second place that belongs to a finding, such as the first of two equal keys."""

    message: str
    file: str
    span: Span

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", clip(escape(self.message)))


class Fix(NamedTuple):
    """Replacing the text at `span` with `text` resolves the finding."""

    text: str
    file: str
    span: Span


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A finding: what is wrong, where, and what to write instead.

    `path` is the YAML path (`decoder.layers[0].heads`). An empty `file` means that the finding has no place in any
    file. Message, hint, label and path are escaped and clipped here, once, so that no renderer can forget to.
    """

    code: str
    message: str
    file: str = ""
    span: Span = START
    path: str = ""
    hint: str | None = None
    label: str | None = None
    related: tuple[Related, ...] = ()
    fix: Fix | None = None

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise KeyError(f"{self.code} is not in seqspec.diagnostics.codes")
        object.__setattr__(self, "message", clip(escape(self.message)))
        object.__setattr__(self, "path", clip(escape(self.path)))
        for name, text in (("hint", self.hint), ("label", self.label)):
            if text is not None:
                object.__setattr__(self, name, clip(escape(text)))

    @property
    def line(self) -> int:
        """The first line, counted from 1."""
        return self.span.line

    @property
    def column(self) -> int:
        """The first column, in code points counted from 1."""
        return self.span.column

    @property
    def end_line(self) -> int:
        """The line where the place ends."""
        return self.span.end_line

    @property
    def end_column(self) -> int:
        """The column just after the place."""
        return self.span.end_column

    @property
    def severity(self) -> Severity:
        """`error` or `warning`, by its code."""
        return CODES[self.code].severity

    @property
    def slug(self) -> str:
        """The readable name of its code, such as `unknown-field`."""
        return CODES[self.code].slug

    def replace(self, **changes: object) -> Diagnostic:
        """The same finding with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


def format_path(path: Iterable[str | int]) -> str:
    """("decoder", "layers", 0, "heads") -> `decoder.layers[0].heads`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
