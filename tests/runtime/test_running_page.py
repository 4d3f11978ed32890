"""docs/running.md: every command and every snippet in order, and the same ids everywhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_programs import genai_python, node_modules

from seqspec.cli import main

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```([a-z ]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = FENCE.findall((ROOT / "docs" / "running.md").read_text())
IDS = re.compile(r"^\[? *(\d+(?:[, ]+\d+){7,}) *\]?$", re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a checkout holds, to be in."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(kind: str) -> list[str]:
    return [text for name, text in BLOCKS if name == kind]


def commands(*words: str) -> Iterator[list[str]]:
    """Those of the page with one of these words, without `seqspec` or `python`."""
    for text in blocks("sh"):
        for line in text.splitlines():
            if any(word in line for word in words):
                yield shlex.split(line)


def run(*command: str | Path) -> str:
    made = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stderr
    return made.stdout


def ids(text: str) -> list[str]:
    """The last eight of each line of ids, as generated."""
    return [",".join(re.split(r"[, ]+", line)[-8:]) for line in IDS.findall(text)]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What commands with these words print."""
    for program, *arguments in commands(*words):
        if program == "seqspec":
            assert main.run(arguments) == 0, arguments
        else:
            sys.stdout.write(run(sys.executable, *arguments))
    return capsys.readouterr().out


def test_ours_and_plain_onnxruntime(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, plain = ids(said(capsys, "out/tiny-llama"))
    assert ours == plain
    (snippet,) = blocks("python")
    found: dict[str, object] = {}
    exec(snippet, found)
    assert ",".join(map(str, found["ids"])) == ours  # type: ignore[call-overload]
    said(capsys, "tiny-half", "tiny-int4", "tiny-cuda", "tiny-portable")
    assert {f.name for f in (folder / "out").iterdir()} == {
        "tiny-llama",
        "tiny-half",
        "tiny-int4",
        "tiny-cuda",
        "tiny-portable",
    }


def test_genai(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = genai_python()
    (ours,) = ids(said(capsys, "-o out/tiny-llama", "seqspec generate", "tiny-genai"))
    (snippet,) = blocks("python genai")
    assert ids(run(python, "-c", snippet)) == [ours]


def test_transformers_js(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "node_modules").symlink_to(node_modules())
    (ours,) = ids(said(capsys, "-o out/tiny-llama", "seqspec generate", "tiny-js"))
    (snippet,) = blocks("js")
    (folder / "snippet.mjs").write_text(snippet)
    assert ids(run("node", "snippet.mjs")) == [ours]


def test_every_block_is_one_of_these() -> None:
    assert {name for name, _ in BLOCKS} == {"sh", "python", "python genai", "js"}
    known = list(
        commands("out/tiny-llama", "tiny-half", "tiny-int4", "tiny-cuda", "tiny-portable", "tiny-genai", "tiny-js")
    )
    assert len(known) == sum(len(text.splitlines()) for text in blocks("sh"))
