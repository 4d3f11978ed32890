"""seqspec doctor"""

from __future__ import annotations

import sys

import click


@click.command()
def command() -> None:
    """What is installed, and which execution providers really work. Exit 1 if something has to be mended."""
    from seqspec.runtime.environment import examine

    findings = list(examine())
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        mark = "  " if finding.fine else "✗ "
        click.echo(f"{mark}{finding.subject:<{width}}  {finding.text}")
        if finding.hint:
            click.echo(f"  {'':<{width}}  → {finding.hint}")
    if not all(finding.fine for finding in findings):
        sys.exit(1)
