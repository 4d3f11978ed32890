"""The findings of a run: sorted, without duplicates, at most a hundred shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .diagnostic import Diagnostic
from .errors import SeqspecError, SpecError

MAX_SHOWN = 100
# Beyond this many, findings are only counted: a hostile file must not fill memory with them.
MAX_KEPT = 2000


class Report:
    """Iterates over the findings to show, sorted by file, place and code; `hidden` counts the rest.

    When there are too many to show, warnings are hidden before errors.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic] = ()) -> None:
        # Dictionaries keep the order and find duplicates fast.
        self._errors: dict[Diagnostic, None] = {}
        self._warnings: dict[Diagnostic, None] = {}
        self._dropped = 0
        self.extend(diagnostics)

    @classmethod
    def of(cls, error: SeqspecError) -> Report:
        """The findings of an error, as a report."""
        report = cls(error.diagnostics)
        report._dropped = error.hidden
        return report

    def add(self, diagnostic: Diagnostic) -> None:
        """Adds a finding, unless it is there already."""
        kept = self._errors if diagnostic.severity == "error" else self._warnings
        if len(kept) < MAX_KEPT:
            kept[diagnostic] = None
        else:
            self._dropped += diagnostic not in kept

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Adds several findings."""
        for diagnostic in diagnostics:
            self.add(diagnostic)

    def include(self, other: Report) -> None:
        """Adds all findings of another report, its hidden ones included."""
        self.extend([*other._errors, *other._warnings])
        self._dropped += other._dropped

    def __iter__(self) -> Iterator[Diagnostic]:
        ranked = [*sorted(self._errors, key=_order), *sorted(self._warnings, key=_order)]
        return iter(sorted(ranked[:MAX_SHOWN], key=_order))

    def __len__(self) -> int:
        """All findings, shown or hidden."""
        return len(self._errors) + len(self._warnings) + self._dropped

    @property
    def hidden(self) -> int:
        """How many findings are counted but not shown."""
        return max(0, len(self) - MAX_SHOWN)

    def __repr__(self) -> str:
        errors = len(self._errors)
        return f"<Report: {errors} errors, {len(self) - errors} other findings>" if len(self) else "<Report: clean>"

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings may be there."""
        return not self.has_errors

    @property
    def has_errors(self) -> bool:
        """Whether any finding is an error."""
        return bool(self._errors)

    def raise_errors(self, sources: Mapping[str, str]) -> None:
        """Raises a `SpecError` with all findings if any of them is an error."""
        if self.has_errors:
            raise SpecError(tuple(self), sources, self.hidden)


def _order(diagnostic: Diagnostic) -> tuple[object, ...]:
    return (diagnostic.file, diagnostic.span, diagnostic.code, diagnostic.message)
