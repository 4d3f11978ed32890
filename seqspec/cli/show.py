"""seqspec show"""

from __future__ import annotations

import click

from seqspec.cli.spec import checked, overridable
from seqspec.cli.word import Word
from seqspec.graph.ir import Graph

_FORMS = ["text", "mermaid", "dot", "json"]


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option("--resolved", is_flag=True, help="Fill every default in. The result is itself a spec.")
@click.option("--graph", "form", type=Word(_FORMS), help="Print the graph of ops instead.")
@overridable
def command(spec: str, resolved: bool, form: str | None, overrides: tuple[str, ...]) -> None:
    """Print SPEC as YAML, after `extends` and `--set`; or as a graph."""
    if resolved and form:
        raise click.UsageError("--resolved prints YAML and --graph a graph: choose one")
    found = checked(spec, overrides)
    assert found.model is not None
    assert found.graph is not None
    if form:
        click.echo(_drawn(found.graph, form), nl=False)
        return
    from seqspec.spec import dump

    click.echo(dump.resolved(found.model) if resolved else dump.written(found.model), nl=False)


def _drawn(graph: Graph, form: str) -> str:
    if form == "text":
        from seqspec.graph.text import text

        return text(graph)
    if form == "json":
        from seqspec.graph.to_json import to_json

        return to_json(graph)
    from seqspec.graph import drawing

    return drawing.mermaid(graph) if form == "mermaid" else drawing.dot(graph)
