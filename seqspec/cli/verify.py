"""seqspec verify"""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="OUT")
@click.option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Of the random inputs. [0]")
def command(folder: Path, seed: int) -> None:
    """Compare a compiled model with PyTorch on random inputs; exit 1 past the tolerance."""
    from seqspec import api

    result = api.verify(folder, seed=seed)
    found = result.by_name()
    width = max(map(len, found), default=0)
    if found:
        click.echo(f"{'':<{width}}  absolute  relative  limit     (relative to the largest value)")
    for name, difference in found.items():
        mark = "" if difference.relative <= result.limits[name] else f"  ✗ {difference.way}"
        numbers = "  ".join(f"{n:<8.2g}" for n in (difference.absolute, difference.relative, result.limits[name]))
        click.echo(f"{name:<{width}}  {numbers}{mark}".rstrip())
    ways = len({difference.way for difference in result.differences})
    click.echo(f"{'agrees' if result.passed else 'differs'}: against {result.judge}, {ways} ways to hand inputs in")
    if result.note:
        click.echo(f"note: {result.note}")
    if not result.passed:
        sys.exit(1)
