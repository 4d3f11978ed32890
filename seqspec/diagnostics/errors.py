"""The exceptions users see: each carries diagnostics with codes, and no others leave the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .diagnostic import Diagnostic


class SeqspecError(Exception):
    """Something is wrong that has no place in a spec; `diagnostics` holds that one finding."""

    def __init__(self, code: str, message: str, hint: str | None = None, file: str = "", path: str = "") -> None:
        self._set((Diagnostic(code, message, file=file, path=path, hint=hint),), {}, 0)
        self.args = (code, message, hint, file, path)

    def _set(self, found: tuple[Diagnostic, ...], sources: Mapping[str, str], hidden: int) -> None:
        self.diagnostics = found
        self.sources = dict(sources)
        self.hidden = hidden

    @property
    def code(self) -> str:
        """The code of the first finding."""
        return self.diagnostics[0].code

    def __str__(self) -> str:
        from .render.text import render_all  # here, because renderers know errors and reports

        return render_all(self.diagnostics, self.sources, hidden=self.hidden)


class SpecError(SeqspecError):
    """A spec is wrong: `diagnostics`, each with .code .message .file .line .column.

    `sources` maps file names to their text, so that `str(error)` can show the lines.
    """

    def __init__(
        self,
        diagnostics: Iterable[Diagnostic] | Diagnostic,
        sources: Mapping[str, str] | None = None,
        hidden: int = 0,
    ) -> None:
        found = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        if not found:
            raise ValueError("a SpecError needs at least one diagnostic")
        self._set(found, sources or {}, hidden)
        self.args = (found, self.sources, hidden)


class CompileError(SeqspecError):
    """A spec that checks cannot be compiled, exported, imported or verified here (SEQ4xx)."""

    def place(self, found: Diagnostic, sources: Mapping[str, str]) -> None:
        """The same finding with its place in the spec."""
        self._set((found,), sources, 0)


class RuntimeFault(SeqspecError):
    """A compiled model cannot run on what it was given (SEQ5xx)."""
