"""seqspec run"""

from __future__ import annotations

from pathlib import Path

import click

from seqspec.cli.providers import PROVIDER

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("folder", type=PATH, metavar="OUT")
@click.option("--input", "given", type=PATH, metavar="X.npz", help="Inputs by name.")
@click.option("-o", "--output", type=PATH, metavar="Y.npz", help="Where results go.")
@click.option("--state", type=PATH, metavar="S.npz", help="The Y.npz of the call before.")
@PROVIDER
def command(
    folder: Path, given: Path | None, output: Path | None, state: Path | None, providers: tuple[str, ...]
) -> None:
    """Run a compiled model on arrays. Y.npz holds the outputs and the state, which a later call may go on from.

    `seqspec run OUT` alone lists the model's inputs, outputs and state, with element types and shapes.
    """
    if given is None and (output or state):
        raise click.UsageError(f"--input is missing; `seqspec run {folder}` lists the inputs of the model")
    if given is not None and output is None:
        raise click.UsageError("-o is missing: the .npz file that results go to")
    from seqspec import Session
    from seqspec.cli import arrays, ports

    if output is not None:
        arrays.refuse(output, [file for file in (given, state) if file is not None])
    session = Session(folder, list(providers) or None)
    if given is None or output is None:
        click.echo(ports.listing(session), nl=False)
        return
    inputs = arrays.read(given, ports.sentence(session))
    past = None
    if state is not None:
        held = arrays.read(state, ", ".join(session.state_names) or "the model has no state")
        past = {name: array for name, array in held.items() if name in session.state_names}
    result = session.run(inputs, past)
    made = result | (result.state or {})
    arrays.write(output, made)
    shown = ", ".join(f"{name} {list(array.shape)}" for name, array in result.items())
    more = f", and the state in {len(result.state)} arrays" if result.state else ""
    click.echo(f"wrote {output}: {shown}{more}")
