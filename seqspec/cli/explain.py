"""seqspec explain"""

from __future__ import annotations

import re
import textwrap

import click

from seqspec.diagnostics import CODES, Code, did_you_mean, find_code


@click.command()
@click.argument("code", required=False, metavar="[CODE]")
def command(code: str | None) -> None:
    """Explain CODE, a number such as SEQ201 or a name such as unknown-field. SEQ2 lists a group; nothing lists all."""
    if code is None:
        _list("")
        return
    if re.fullmatch(r"(?i)SEQ\d(xx)?", code):
        _list(code[:4].upper())
        return
    found = find_code(code)
    if found is None:
        names = [*CODES, *(entry.slug for entry in CODES.values())]
        hint = did_you_mean(code, names) if len(code) > 2 else None
        known = hint if hint and hint.startswith("did") else "`seqspec explain` lists them"
        raise click.UsageError(f"there is no code `{code}`; {known}")
    click.echo(_text(*found))


def _list(beginning: str) -> None:
    """A line a code."""
    listed = {number: entry for number, entry in CODES.items() if number.startswith(beginning)}
    if not listed:
        raise click.UsageError(f"no codes begin with {beginning}; `seqspec explain` lists all")
    width = max(len(entry.slug) for entry in CODES.values())
    for number, entry in listed.items():
        click.echo(f"{number}  {entry.slug:<{width}}  {entry.title}")


def _text(number: str, entry: Code) -> str:
    parts = [f"{number}: {entry.title}", f"({entry.severity}, {entry.slug})", textwrap.fill(entry.explanation, 96)]
    for title, example in (("Wrong:", entry.bad), ("Right:", entry.good)):
        if example:
            parts.append(f"{title}\n{textwrap.indent(example, '    ')}")
    return "\n\n".join(parts)
