"""Optional packages: a missing one is reported by the extra that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import CompileError


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Wraps imports of the packages in extra `name`: a missing one becomes SEQ401, which says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "seqspec":
            raise
        text = f"this needs the package `{missing}`, which is not installed"
        raise CompileError("SEQ401", text, f"pip install 'seqspec-compiler[{name}]'") from None
