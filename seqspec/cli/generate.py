"""seqspec generate"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from seqspec.cli.providers import PROVIDER


def _ids(ctx: click.Context, param: click.Parameter, rows: tuple[str, ...]) -> list[list[int]]:
    """`1,2,3`, once or more."""
    try:
        return [[int(part) for part in row.split(",")] for row in rows]
    except ValueError:
        raise click.BadParameter("ids are numbers with commas between them, as in 1,2,3") from None


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="OUT")
@click.option("--ids", callback=_ids, multiple=True, required=True, metavar="1,2,3", help="Ids; repeat for a batch.")
@click.option("--max-new-tokens", type=click.IntRange(1), required=True, metavar="N", help="How many ids at most.")
@click.option("--eos-id", type=int, metavar="ID", help="The id that ends a sequence.")
@click.option("--decoder-start-id", type=int, metavar="ID", help="What a decoder behind an encoder begins with.")
@click.option("--temperature", type=click.FloatRange(0), metavar="T", help="0 is greedy. [0]")
@click.option("--top-k", type=click.IntRange(1), metavar="K", help="Draw from the K likeliest ids.")
@click.option("--top-p", type=click.FloatRange(0, 1, True), metavar="P", help="Draw from the likeliest that sum to P.")
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Of the draws. [0]")
@PROVIDER
def command(folder: Path, ids: list[list[int]], providers: tuple[str, ...], **options: Any) -> None:
    """Continue sequences of ids with a compiled model; a line of ids for each."""
    from seqspec import Session

    eos_id = options["eos_id"]
    given = {name: value for name, value in options.items() if value is not None}
    for row in Session(folder, list(providers) or None).generate(ids, **given).tolist():
        end = row.index(eos_id) + 1 if eos_id in row else len(row)
        click.echo(",".join(map(str, row[:end])))
