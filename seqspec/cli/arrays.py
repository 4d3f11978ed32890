"""Arrays in .npz files, as `seqspec run` reads and writes them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from seqspec.diagnostics import CompileError

Arrays = dict[str, Any]
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the second is one without files


def read(file: Path, wanted: str) -> Arrays:
    """The arrays of an .npz file. Pickled objects are refused, since loading one runs its code.

    `wanted` says what belongs into it, for a file that is something else.
    """
    import numpy as np

    hint = f"give an .npz with arrays by name: {wanted}"
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise click.UsageError(f"{file} holds one array without a name; {hint}")
        with loaded as arrays:
            return {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile):
        raise click.UsageError(f"{file} is no .npz file of plain arrays; {hint}") from None


def refuse(file: Path, inputs: Iterable[Path]) -> None:
    """Refuses to replace anything but an .npz file, or a file that was read."""
    from seqspec.backends.directory import refuse_file

    if file.exists():
        for read_from in inputs:
            if read_from.exists() and file.samefile(read_from):
                text = f"`{file}` is what this call reads."
                raise CompileError("SEQ403", text, "nothing was changed; give the results a file of their own")
    refuse_file(file, is_zip)


def write(file: Path, arrays: Arrays) -> None:
    """One .npz file, complete or not at all."""
    import numpy as np

    from seqspec.backends.directory import replace_file

    content = io.BytesIO()
    np.savez(content, **arrays)
    replace_file(file, content.getvalue(), is_zip)


def is_zip(head: bytes) -> bool:
    """Whether a file that begins with these bytes may be an .npz file."""
    return head.startswith(_ZIP)
