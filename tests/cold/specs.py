"""The sound specs that tests go over."""

from __future__ import annotations

import shutil
from pathlib import Path

import seqspec

HERE = Path(__file__).parent
EXAMPLES = sorted((HERE.parents[1] / "examples").rglob("*.yaml"))
VALID = sorted((HERE / "fixtures/specs/valid").glob("*.yaml"))
INVALID = sorted((HERE / "fixtures/specs/invalid").glob("*.yaml"))
SOUND = EXAMPLES + VALID


def saved(text: str, origin: Path, folder: Path) -> Path:
    """A spec as it was printed, in a file of a folder, with the tokenizer that its original names."""
    tokenizer = seqspec.load(origin).tokenizer
    if tokenizer is not None and not isinstance(tokenizer, str):
        copy = folder / tokenizer.file
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(origin.parent / tokenizer.file, copy)
    path = folder / "printed.yaml"
    path.write_text(text)
    return path
