"""Models made elsewhere, as a spec and weights: `import_model`."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from seqspec.diagnostics import CompileError
from seqspec.importers.hf import import_directory
from seqspec.importers.imported import Imported
from seqspec.importers.text import to_yaml
from seqspec.importers.weights import write_file

__all__ = ["Imported", "import_directory", "import_model"]


def import_model(directory: str | Path, output: str | Path) -> Path:
    """A Hugging Face `directory` -> `output`/spec.yaml and `output`/model.safetensors.

    The spec is named after `output`, which must be new or empty and appears complete or not at all.
    """
    output = Path(output)
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise CompileError("SEQ403", "the output holds something already", file=str(output))
    imported = import_directory(Path(directory))
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.parent))
        try:
            _write(imported, _name(output), part)
            _move(part, output)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise CompileError("SEQ404", f"the output cannot be written: {error.strerror}", file=str(output)) from None
    return output


def _write(imported: Imported, name: str, folder: Path) -> None:
    notes = ("Imported by `seqspec import`; the weights are in model.safetensors.", *imported.notes)
    write_file(folder / "model.safetensors", imported.weights)
    text = to_yaml({"seqspec": 1, "name": name, **imported.spec}, notes)
    (folder / "spec.yaml").write_text(text, "utf-8", newline="\n")


def _name(output: Path) -> str:
    """The folder's name, made one a spec can have."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", output.resolve().name).lstrip("-.0123456789")[:64] or "imported"


def _move(part: Path, output: Path) -> None:
    os.umask(mask := os.umask(0))  # the only way to read it: mkdtemp's folder is private, the result need not be
    part.chmod(0o777 & ~mask)
    if output.exists():
        output.rmdir()  # empty; Windows renames onto nothing
    part.rename(output)
