"""Checking a spec loads nothing heavy. What it costs is measured by benchmarks/check.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from specs import EXAMPLES, HERE

import seqspec

HEAVY = ["torch", "onnx", "onnx_ir", "onnxruntime", "networkx", "numpy", "transformers", "safetensors", "difflib"]
COMMANDS = [["check"], ["show", "--resolved"], ["show", "--graph", "text"], ["report"]]

_WATCHED = f"""
import sys
from seqspec.cli.main import run
code = run(sys.argv[1:])
loaded = [name for name in {HEAVY!r} if name in sys.modules]
print("LOADED", *loaded, file=sys.stderr)
sys.exit(code)
"""


def environment(folder: Path) -> dict[str, str]:
    """One in which compiled modules are kept, as in an installation."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    package = str(Path(seqspec.__file__).parents[1])
    return {**kept, "PYTHONPATH": package, "PYTHONPYCACHEPREFIX": str(folder / "pycache")}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_heavy_is_imported(command: list[str], tmp_path: Path) -> None:
    spec = str(HERE.parents[1] / "examples/nmt-bahdanau.yaml")
    arguments = [sys.executable, "-c", _WATCHED, command[0], spec, *command[1:]]
    done = subprocess.run(arguments, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "LOADED\n"


def test_importing_the_package_imports_next_to_nothing(tmp_path: Path) -> None:
    mine = "n for n in sys.modules if n.startswith(('seqspec', 'pydantic', 'yaml', 'click'))"
    code = f"import sys, seqspec; print(*sorted({mine}))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True)
    assert done.stdout.split() == ["seqspec"]


def test_public_names_are_there() -> None:
    missing = [name for name in seqspec.__all__ if not hasattr(seqspec, name) and name not in ("Session",)]
    assert missing == []
    with pytest.raises(AttributeError):
        _ = seqspec.nothing  # type: ignore[attr-defined]


def test_build_stays_a_function() -> None:
    """Though importing the file of that name would put the module there."""
    import seqspec.build
    from seqspec import build

    assert callable(build)
    assert seqspec.build(seqspec.load(EXAMPLES[0])).root.name
