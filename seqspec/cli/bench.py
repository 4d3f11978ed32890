"""seqspec bench"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seqspec.cli.providers import PROVIDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from seqspec.runtime.bench import Bench, Phase

_SHOWN = 8


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="OUT")
@click.option("--batch", type=click.IntRange(1), default=1, metavar="N", help="Sequences at once. [1]")
@click.option("--length", type=click.IntRange(1), metavar="N", help="Positions read at first. [128, or a table's]")
@click.option("--steps", type=click.IntRange(0), metavar="N", help="Positions after those, one by one. [32]")
@click.option("--runs", type=click.IntRange(1), default=5, metavar="N", help="How often all is measured. [5]")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads of an op. [as many as cores]")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="How it is written.")
@PROVIDER
def command(
    folder: Path,
    batch: int,
    length: int | None,
    steps: int | None,
    runs: int,
    threads: int | None,
    form: str,
    providers: tuple[str, ...],
) -> None:
    """Time a compiled model: reading whole sequences, writing one position after another, and each op of both."""
    from seqspec.runtime.bench import Asked, bench

    found = bench(folder, Asked(batch, length, steps, runs, threads), list(providers) or None)
    if form == "json":
        import json

        click.echo(json.dumps(found.to_json(), indent=2))
        return
    for line in _lines(found):
        click.echo(line)


def _lines(found: Bench) -> Iterator[str]:
    asked = found.asked
    threads = f", {asked.threads} thread{'s' if asked.threads > 1 else ''}" if asked.threads else ""
    runs = f"medians of {asked.runs} runs" if asked.runs > 1 else "one run"
    yield f"{found.folder} on {found.providers[0]}{threads}; {runs}"
    yield ""
    for phase in found.phases:
        yield _phase(found, phase)
    for phase in found.phases:
        total = sum(op.seconds for op in phase.ops)
        yield ""
        yield f"ops of {phase.name}, {1e3 * total:.3g} ms in the profiler"
        for op in phase.ops[:_SHOWN]:
            yield f"  {op.seconds / total:>6.1%}  {1e3 * op.seconds:>8.3f} ms  {op.nodes:>4.0f} × {op.op}"
        rest = phase.ops[_SHOWN:]
        if rest:
            seconds = sum(op.seconds for op in rest)
            yield f"  {seconds / total:>6.1%}  {1e3 * seconds:>8.3f} ms  {len(rest)} more"


def _phase(found: Bench, phase: Phase) -> str:
    unit = found.unit if phase.positions > 1 else found.unit.removesuffix("s")
    what = f"{found.asked.batch} × {phase.positions} {unit}" + (f" after {phase.past}" if phase.past else "")
    return f"{phase.name:<8}{what:<26}{1e3 * phase.median:>9.3f} ms  {found.rate(phase):>11,.0f} {found.unit}/s"
