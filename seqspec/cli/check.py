"""seqspec check"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

import click

from seqspec.cli.spec import examine_path, overridable
from seqspec.cli.word import Word
from seqspec.diagnostics import Report

_FORMATS = ["text", "json", "github"]
# Recognises specs among other YAML files of a folder: the key `seqspec`, perhaps quoted or in braces.
_IS_SPEC = re.compile(rb"""^(?:\{\s*)?["']?seqspec["']?\s*:""", re.MULTILINE)


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option("--format", "form", type=Word(_FORMATS), default="text", help="How findings are written.")
@overridable
def command(paths: tuple[str, ...], form: str, overrides: tuple[str, ...]) -> None:
    """Find everything that is wrong with specs, without PyTorch and without weights.

    A folder stands for all specs in it: *.yaml and *.yml files with a `seqspec:` key. `-` is stdin.
    """
    report, sources, count = Report(), dict[str, str](), 0
    for path in dict.fromkeys(spec for given in paths for spec in _specs(given)):
        found = examine_path(path, overrides)
        report.include(found.report)
        sources |= found.sources
        count += 1
    _write(report, sources, form, count)
    if report.has_errors:
        sys.exit(1)


def _specs(path: str) -> Iterator[str]:
    """The specs at a path: a file, or those in a folder."""
    if path == "-" or not os.path.isdir(path):
        yield path
        return
    found = False
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            file = os.path.join(folder, name)
            if name.endswith((".yaml", ".yml")) and _is_spec(file):
                found = True
                yield file
    if not found:
        raise click.UsageError(f"no specs in `{path}`: no *.yaml file there has a `seqspec:` key")


def _is_spec(file: str) -> bool:
    try:
        if not os.path.isfile(file):
            return False
        with open(file, "rb") as opened:
            return _IS_SPEC.search(opened.read(1 << 20)) is not None
    except OSError:
        return True  # checking it tells what is wrong


def _write(report: Report, sources: dict[str, str], form: str, count: int) -> None:
    if form == "text" and not len(report):
        click.echo(f"{count} spec{'s' if count != 1 else ''} checked, nothing found.")
    elif form == "text":
        from seqspec.diagnostics.render.text import render, wants_colour

        colour = wants_colour(sys.stdout)
        click.echo(render(report, sources, colour=colour), nl=False, color=colour)
    elif form == "json":
        from seqspec.diagnostics.render import json

        click.echo(json.render(report, sources), nl=False)
    else:
        from seqspec.diagnostics.render import github

        click.echo(github.render(report, sources), nl=False)
