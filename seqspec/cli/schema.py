"""seqspec schema"""

from __future__ import annotations

import click

from seqspec.cli.word import Word


@click.command()
@click.option("--format", "form", type=Word(["json", "markdown"]), default="json", help="How it is written.")
def command(form: str) -> None:
    """Print the JSON Schema of specs (draft 7), for editors and other validators; or every key as a page to read.

    It knows every field, kind and range. What fields mean together only `seqspec check` knows.
    """
    if form == "markdown":
        from seqspec.spec.reference import markdown

        click.echo(markdown(), nl=False)
        return
    from seqspec.spec.schema import text

    click.echo(text(), nl=False)
