"""The exceptions users see. Each carries diagnostics with codes, and the API raises no others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .diagnostic import Diagnostic


class SeqspecError(Exception):
    """Something is wrong outside of any spec. `diagnostics` holds that one finding."""

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
        from .render.text import render_all  # not at the top: renderers import reports, which import this module

        return render_all(self.diagnostics, self.sources, hidden=self.hidden)


class SpecError(SeqspecError):
    """A spec is wrong. Each of its `diagnostics` has .code .message .file .line .column.

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
    """A valid spec cannot be compiled, exported, imported or verified here (SEQ4xx)."""

    def place(self, found: Diagnostic, sources: Mapping[str, str]) -> None:
        """Replaces the finding by `found`, which says where in the spec it lies."""
        self._set((found,), sources, 0)


class RuntimeFault(SeqspecError):
    """A compiled model cannot run on what it was given (SEQ5xx)."""
