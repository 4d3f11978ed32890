"""Findings collected over a run: sorted, each once, at most a hundred shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .diagnostic import Diagnostic
from .errors import SpecError

MAX_SHOWN = 100
# Past this many, findings are only counted: a hostile file must not fill the memory with them.
MAX_KEPT = 2000


class Report:
    """Iterating gives the findings to show, by file, place and code; `hidden` counts the rest."""

    def __init__(self, diagnostics: Iterable[Diagnostic] = ()) -> None:
        self._kept: dict[Diagnostic, None] = {}
        self._dropped = 0
        self.extend(diagnostics)

    def add(self, diagnostic: Diagnostic) -> None:
        if len(self._kept) < MAX_KEPT:
            self._kept[diagnostic] = None
        else:
            self._dropped += diagnostic not in self._kept

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        for diagnostic in diagnostics:
            self.add(diagnostic)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(sorted(self._kept, key=_order)[:MAX_SHOWN])

    def __len__(self) -> int:
        """All findings, shown or hidden."""
        return len(self._kept) + self._dropped

    def __bool__(self) -> bool:
        return bool(self._kept)

    @property
    def hidden(self) -> int:
        """How many findings are counted but not shown."""
        return max(0, len(self) - MAX_SHOWN)

    @property
    def has_errors(self) -> bool:
        return any(diagnostic.severity == "error" for diagnostic in self._kept)

    def raise_errors(self, sources: Mapping[str, str]) -> None:
        """Raise a `SpecError` with everything found when any of it is an error."""
        if self.has_errors:
            raise SpecError(tuple(self), sources, self.hidden)


def _order(diagnostic: Diagnostic) -> tuple[object, ...]:
    return (diagnostic.file, diagnostic.span, diagnostic.code, diagnostic.message)
