"""seqspec schema"""

from __future__ import annotations

import click


@click.command()
def command() -> None:
    """Print the JSON Schema of specs (draft 7), for editors and other validators.

    It knows every field, kind and range. What fields mean together only `seqspec check` knows.
    """
    from seqspec.spec.schema import text

    click.echo(text(), nl=False)
