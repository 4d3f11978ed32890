"""seqspec generate"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seqspec.cli.providers import PROVIDER

if TYPE_CHECKING:
    from seqspec.runtime.session import Session
    from seqspec.runtime.text import Tokenizer


def _ids(ctx: click.Context, param: click.Parameter, rows: tuple[str, ...]) -> list[list[int]]:
    """Parses `1,2,3`, given once or several times."""
    try:
        return [[int(part) for part in row.split(",")] for row in rows]
    except ValueError:
        raise click.BadParameter("ids are numbers with commas between them, as in 1,2,3") from None


def _early(ctx: click.Context, param: click.Parameter, word: str | None) -> bool | str | None:
    return {"yes": True, "no": False}.get(word, word) if word else None


_COUNT, _SHARE = click.IntRange(1), click.FloatRange(0, 1, True)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="OUT")
@click.option("--ids", callback=_ids, multiple=True, metavar="1,2,3", help="Ids; repeat for a batch.")
@click.option("--text", "texts", multiple=True, metavar="TEXT", help="Text, by the spec's tokenizer; repeat for more.")
@click.option("--max-new-tokens", type=_COUNT, required=True, metavar="N", help="How many ids at most.")
@click.option("--min-new-tokens", type=click.IntRange(0), metavar="N", help="How many at least. [0]")
@click.option("--eos-id", type=click.IntRange(0), multiple=True, metavar="ID", help="An id that ends a sequence.")
@click.option("--stop", callback=_ids, multiple=True, metavar="1,2", help="Ids that end a sequence together.")
@click.option("--decoder-start-id", type=int, metavar="ID", help="What a decoder behind an encoder begins with.")
@click.option("--temperature", type=click.FloatRange(0), metavar="T", help="0 is greedy. [0]")
@click.option("--top-k", type=_COUNT, metavar="K", help="Draw from the K likeliest ids.")
@click.option("--top-p", type=_SHARE, metavar="P", help="Draw from the likeliest that sum to P.")
@click.option("--min-p", type=_SHARE, metavar="P", help="Draw from those P times as likely as the likeliest, or more.")
@click.option("--repetition-penalty", type=click.FloatRange(0, min_open=True), metavar="P", help="Above 1, fewer. [1]")
@click.option("--num-beams", type=_COUNT, metavar="K", help="Texts kept in a beam search. [1]")
@click.option("--length-penalty", type=float, metavar="P", help="Scores are divided by length^P. [1]")
@click.option("--early-stopping", type=click.Choice(["yes", "no", "never"]), callback=_early, help="Of beams. [no]")
@click.option("--num-return-sequences", type=_COUNT, metavar="N", help="Texts for each prompt. [1]")
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Of the draws. [0]")
@PROVIDER
def command(
    folder: Path, ids: list[list[int]], texts: tuple[str, ...], providers: tuple[str, ...], **options: Any
) -> None:
    """Continue ids or texts with a compiled model, a line for each; one alone is shown while it comes."""
    if bool(ids) == bool(texts):
        raise click.UsageError("give --ids 1,2,3 or --text TEXT, once or more")
    from seqspec import Session

    session = Session(folder, list(providers) or None)
    tokenizer = session.tokenizer if texts else None
    given = {name: value for name, value in options.items() if value not in (None, (), [])}
    for name, known in session.named_ids.items():
        given.setdefault(name, known)
    prompts = [tokenizer.encode(text) for text in texts] if tokenizer else ids
    if len(prompts) == 1 and given.get("num_beams", 1) == given.get("num_return_sequences", 1) == 1:
        _as_it_comes(_until_end(session, prompts, given), tokenizer)
        return
    made = session.generate(prompts, **given)
    for row in made.reshape(-1, made.shape[-1]).tolist():
        text = list(_cut(row, given))
        click.echo(tokenizer.decode(text) if tokenizer else ",".join(map(str, text)))


def _until_end(session: Session, prompts: list[list[int]], given: dict[str, Any]) -> Iterator[int]:
    return (int(column[0]) for column in session.stream(prompts, **given))


def _as_it_comes(ids: Iterable[int], tokenizer: Tokenizer | None) -> None:
    """Prints to the terminal, piece by piece."""
    pieces = tokenizer.stream(ids) if tokenizer else (f",{one}" if n else str(one) for n, one in enumerate(ids))
    for piece in pieces:
        click.echo(piece, nl=False)
    click.echo()


def _cut(row: list[int], given: dict[str, Any]) -> Iterator[int]:
    """A row of ids up to its end."""
    ends = {given["eos_id"]} if isinstance(given.get("eos_id"), int) else set(given.get("eos_id", ()))
    for one in row:
        if one < 0:
            return
        yield one
        if one in ends:
            return
