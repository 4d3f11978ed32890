"""Checking a spec loads nothing heavy, and costs little beyond the libraries it cannot do without."""

from __future__ import annotations

import os
import resource
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
# The libraries a check needs, and one model, so that what they import late is in.
_LIBRARIES = """
import click, yaml, pydantic
class Model(pydantic.BaseModel):
    number: int
Model(number=1)
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


# ---- speed -----------------------------------------------------------------------------------------------------------


def long_spec() -> str:
    """300 lines, thirty blocks of which no two are equal."""
    lines = [
        "seqspec: 1",
        "name: long",
        "decoder:",
        "  input: {kind: tokens, vocab_size: 1000}",
        "  d_model: 64",
        "  position: rope",
        "  norm: rmsnorm",
        "  layers:",
    ]
    for n in range(32):
        lines += [
            "    - repeat: 2",
            "      block:",
            "        - kind: attention",
            "          heads: 8",
            f"          mask: {{all: [causal, {{kind: window, size: {n + 8}}}]}}",
            "        - kind: ffn",
            f"          d_ff: {64 + n}",
            "          activation: silu",
            "          gated: true",
        ]
    lines += ["head:", "  kind: lm", "  tied: true"]
    return "\n".join(lines) + "\n"


def seconds(arguments: list[str], folder: Path) -> float:
    """Processor time of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=environment(folder), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.skipif(os.getloadavg()[0] > (os.cpu_count() or 1), reason="a busy machine measures itself")
def test_a_check_costs_half_as_much_again_as_its_libraries(tmp_path: Path) -> None:
    """Alternately, so that what else the machine does falls on both; the minimum of seven."""
    spec = tmp_path / "long.yaml"
    spec.write_text(long_spec())
    assert 297 <= len(spec.read_text().splitlines()) <= 303
    script = "from seqspec.cli.main import main; main()"  # as the console script has it
    check, libraries = ["-c", script, "check", str(spec)], ["-c", _LIBRARIES]
    seconds(check, tmp_path), seconds(libraries, tmp_path)
    measured = [(seconds(check, tmp_path), seconds(libraries, tmp_path)) for _ in range(7)]
    ratio = min(own for own, _ in measured) / min(other for _, other in measured)
    assert ratio <= 1.5, f"{ratio:.2f} times"
