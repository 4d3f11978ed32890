"""seqspec import"""

from __future__ import annotations

from pathlib import Path

import click

from seqspec.cli.interrupt import interruptible


@click.command("import")
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="D", help="Folder to make.")
def command(directory: Path, output: Path) -> None:
    """A Hugging Face directory becomes D/spec.yaml and D/model.safetensors."""
    from seqspec import api

    with interruptible():
        api.import_model(directory, output)
