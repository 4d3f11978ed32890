"""seqspec diff"""

from __future__ import annotations

import sys

import click

from seqspec.cli.spec import checked


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
def command(a: str, b: str) -> None:
    """Compare two specs by path, defaults filled in, and their numbers of parameters. Exit 1 if they differ."""
    from seqspec.diagnostics import escape
    from seqspec.reports.count import Count
    from seqspec.spec.compare import changes
    from seqspec.spec.dump import plain

    before, after = checked(a), checked(b)
    assert before.model is not None
    assert before.graph is not None
    assert after.model is not None
    assert after.graph is not None
    found = [str(change) for change in changes(plain(before.model.resolved()), plain(after.model.resolved()))]
    for line in found:
        click.echo(escape(line))
    sizes = {"batch_size": 1, "sequence_length": 1, "past_sequence_length": 0}
    old, new = (Count(sizes, "float32").params(graph.root)[0] for graph in (before.graph, after.graph))
    if old != new:
        click.echo(f"\nparameters: {old:,} -> {new:,} ({new - old:+,})")
    if found:
        sys.exit(1)
    click.echo("The specs say the same.")
