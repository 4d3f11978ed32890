"""seqspec run"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import click

Arrays = dict[str, Any]
PATH = click.Path(path_type=Path)


@click.command()
@click.argument("folder", type=PATH, metavar="OUT")
@click.option("--input", "given", type=PATH, required=True, metavar="X.npz", help="Inputs by name.")
@click.option("-o", "--output", type=PATH, required=True, metavar="Y.npz", help="Where results go.")
@click.option("--state", type=PATH, metavar="S.npz", help="The Y.npz of the call before.")
@click.option("--provider", "providers", multiple=True, metavar="NAME", help="By onnxruntime's name; repeat it.")
def command(folder: Path, given: Path, output: Path, state: Path | None, providers: tuple[str, ...]) -> None:
    """Run a compiled model on arrays. Y.npz holds the outputs and the state, which a later call may go on from."""
    from seqspec import Session

    session = Session(folder, list(providers) or None)
    inputs = read(given)
    past = None
    if state is not None:
        past = {name: array for name, array in read(state).items() if name in session.state_names}
    result = session.run(inputs, past)
    write(output, result | (result.state or {}))


def read(file: Path) -> Arrays:
    """The arrays of an .npz file; pickled objects are refused, since loading one runs its code."""
    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise click.UsageError(f"{file} is no .npz file of plain arrays: {error}") from None


def write(file: Path, arrays: Arrays) -> None:
    """One .npz file, complete or not at all."""
    import numpy as np

    from seqspec.backends.directory import replace_file

    content = io.BytesIO()
    np.savez(content, **arrays)
    replace_file(file, content.getvalue())
