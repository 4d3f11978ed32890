"""Shared by commands that read a spec: the argument, `--set`, and reading from stdin."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from seqspec.checking import Checked, examine_document
from seqspec.diagnostics import Diagnostic, Report, SpecError
from seqspec.document import MAX_BYTES, Document, load_file, load_text
from seqspec.document.text import decode

STDIN = "<stdin>"
Command = TypeVar("Command", bound=Callable[..., Any])


def overridable(command: Command) -> Command:
    """Gives a command `--set`, as `overrides`."""
    text = "Override a value, as in `decoder.layers[0].repeat=2`; may be given several times."
    return click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=text)(command)


def examine_path(path: str, overrides: Sequence[str] = ()) -> Checked:
    """The result of checking the spec at a path, or on stdin if the path is `-`."""
    try:
        document = _stdin(overrides) if path == "-" else load_file(path, overrides=overrides)
    except SpecError as error:
        return Checked(Report.of(error), error.sources)
    return examine_document(document)


def checked(path: str, overrides: Sequence[str] = ()) -> Checked:
    """The same for a command that needs a valid spec: a SpecError if it has errors."""
    found = examine_path(path, overrides)
    found.report.raise_errors(found.sources)
    return found


def _stdin(overrides: Sequence[str]) -> Document:
    given = b"" if sys.__stdin__ is None else sys.stdin.buffer.read(MAX_BYTES + 1)  # None where it is closed
    text = decode(given, STDIN)
    if isinstance(text, Diagnostic):
        raise SpecError(text)
    return load_text(text, file=STDIN, overrides=overrides)
