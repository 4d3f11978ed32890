"""Imports models made elsewhere as a spec and weights: `import_model`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from seqspec.diagnostics import CompileError
from seqspec.document.dump import to_yaml

if TYPE_CHECKING:
    from seqspec.importers.imported import Imported


def import_model(directory: str | Path, output: str | Path) -> Path:
    """A Hugging Face `directory` -> `output`/spec.yaml and `output`/model.safetensors.

    The spec is named after `output`, which must be new or empty and appears complete or not at all. It is checked, and
    the weights against it, before anything is written.
    """
    from seqspec.backends.directory import replacing, write  # here, so that `importers.text` costs no NumPy
    from seqspec.backends.weights import check
    from seqspec.build import build
    from seqspec.checking import load
    from seqspec.importers.hf import import_directory
    from seqspec.importers.weights import write_file

    output = Path(output)
    if output.is_dir() and any(output.iterdir()):
        raise CompileError("SEQ403", f"`{output}` holds something already", "give a directory that does not exist yet")
    imported = import_directory(Path(directory))
    text = _text(imported, _name(output))
    check(build(load(text)).root.params, imported.weights)
    with replacing(output) as folder:
        write_file(folder / "model.safetensors", imported.weights)
        write(folder / "spec.yaml", text.encode())
    return output


def _text(imported: Imported, name: str) -> str:
    notes = ("Imported by `seqspec import`; the weights are in model.safetensors.", *imported.notes)
    return to_yaml({"seqspec": 1, "name": name, **imported.spec}, notes)


def _name(output: Path) -> str:
    """The folder's name, changed into a valid name of a spec."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", output.resolve().name).lstrip("-.0123456789")[:64] or "imported"
