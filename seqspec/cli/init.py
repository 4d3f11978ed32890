"""seqspec init"""

from __future__ import annotations

import os

import click

from seqspec.cli.starters import STARTERS
from seqspec.cli.word import Word
from seqspec.diagnostics import CompileError


@click.command()
@click.argument("kind", type=Word(list(STARTERS)), metavar="KIND")
@click.option("-o", "--output", metavar="FILE", help="Where to write it; `-` is stdout. [KIND.yaml]")
def command(kind: str, output: str | None) -> None:
    """Write a commented spec to start from. KIND is language-model, classifier, seq2seq, encoder or forecaster."""
    path = output or f"{kind}.yaml"
    if path == "-":
        click.echo(STARTERS[kind], nl=False)
        return
    try:
        # exclusive creation: an existing file stays, even one that appears in between
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        raise CompileError("SEQ403", f"`{path}` exists already", "choose another name with -o", path) from None
    except OSError as error:
        raise CompileError("SEQ404", f"cannot write `{path}`: {(error.strerror or '').lower()}", file=path) from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(STARTERS[kind])
    click.echo(f"Wrote {path}. Next: seqspec check {path}; seqspec report {path}")
