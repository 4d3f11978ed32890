"""seqspec report"""

from __future__ import annotations

import click

from seqspec.cli.spec import checked, overridable
from seqspec.cli.word import Word
from seqspec.reports.count import DTYPES


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option("--batch", type=click.IntRange(1), default=1, metavar="N", help="Sequences at once. [1]")
@click.option("--time", type=click.IntRange(1), metavar="N", help="Positions of the call. [128, or a table's length]")
@click.option("--past", type=click.IntRange(0), default=0, metavar="N", help="Positions that calls before it left. [0]")
@click.option("--source-time", type=click.IntRange(1), metavar="N", help="Positions the encoder reads. [as --time]")
@click.option("--dtype", type=Word(DTYPES), default="float32", help="What the model computes in.")
@click.option("--format", "form", type=Word(["text", "json"]), default="text", help="How it is written.")
@overridable
def command(
    spec: str,
    batch: int,
    time: int | None,
    past: int,
    source_time: int | None,
    dtype: str,
    form: str,
    overrides: tuple[str, ...],
) -> None:
    """Parameters, FLOPs and memory of SPEC, and how they grow: exactly, without weights."""
    found = checked(spec, overrides)
    assert found.model is not None
    assert found.graph is not None
    if source_time is not None and not found.graph.once:
        raise click.UsageError("--source-time is an encoder's beside a decoder, and this model has one stack")
    if past and not found.graph.root.states:
        raise click.UsageError("--past needs a model that carries state, and this one has none")
    from seqspec.reports import report

    summary = report(found.model, batch=batch, time=time, past=past, source_time=source_time, dtype=dtype)
    if form == "json":
        import json

        click.echo(json.dumps(summary.to_json(), indent=2))
        return
    from seqspec.reports.text import render

    click.echo(render(summary), nl=False)
