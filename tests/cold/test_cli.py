"""The command line: what is printed where, exit codes, and no tracebacks."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from functools import partial
from pathlib import Path

import pytest
from specs import EXAMPLES, HERE, saved

import seqspec
from seqspec.cli.main import COMMANDS, run
from seqspec.cli.starters import STARTERS

GPT2 = str(HERE.parents[1] / "examples/gpt2.yaml")
LLAMA = str(HERE.parents[1] / "examples/llama-3.2-1b.yaml")
BAD = str(HERE / "fixtures/specs/invalid/several.yaml")
UNREAD = str(HERE / "fixtures/specs/invalid/encoder-unread.yaml")


@pytest.fixture(autouse=True)
def plain_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("SEQSPEC_TRACEBACK", raising=False)


# ---- check -----------------------------------------------------------------------------------------------------------


def test_a_sound_spec(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", GPT2]) == 0
    assert capsys.readouterr().out == "1 spec checked, nothing found.\n"


def test_findings_with_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", BAD, GPT2]) == 1
    out = capsys.readouterr().out
    assert "error[SEQ103]: unknown kind `fnn`" in out
    assert f"--> {BAD}:9:65" in out
    assert "help: did you mean `ffn`?" in out
    assert out.endswith("Found 4 errors in 1 file.\n")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--format", "json", BAD, UNREAD]) == 1
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert [(d["code"], d["line"]) for d in found if d["file"] == BAD][-1] == ("SEQ103", 9)
    assert [d["path"] for d in found if d["file"] == UNREAD] == ["encoder"]
    assert run(["check", "--format", "json", GPT2]) == 0
    assert json.loads(capsys.readouterr().out)["diagnostics"] == []


def test_github(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--format", "github", BAD]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("::error title=seqspec SEQ") for line in lines[:-1])


def test_folders_are_searched_for_specs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = Path(GPT2).read_text()
    (tmp_path / "a").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "a/one.yaml").write_text(good)
    (tmp_path / "two.yml").write_text("# a comment\n" + good)
    (tmp_path / "three.yaml").write_text("{seqspec: 2}")
    (tmp_path / "other.yaml").write_text("on: [push]\n")
    (tmp_path / "notes.txt").write_text("seqspec: 1\n")
    (tmp_path / ".hidden/four.yaml").write_text("seqspec: 1\n")
    assert run(["check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "three.yaml" in out
    assert "four.yaml" not in out
    (tmp_path / "three.yaml").unlink()
    assert run(["check", str(tmp_path), str(tmp_path / "two.yml")]) == 0
    assert capsys.readouterr().out.startswith("2 specs checked")
    (tmp_path / "empty").mkdir()
    assert run(["check", str(tmp_path / "empty")]) == 2


def test_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def given(data: bytes) -> int:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        return run(["check", "-"])

    assert given(Path(GPT2).read_bytes()) == 0
    assert given(b"seqspec: 1\nname: \xff\n") == 1
    assert given(b"seqspec: 1\nname: x\nextends: base.yaml\n") == 1
    out = capsys.readouterr().out
    assert "error[SEQ005]" in out
    assert "--> <stdin>:2:7" in out
    assert "error[SEQ036]" in out


def test_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", GPT2, "--set", "decoder.d_model=767"]) == 1
    assert "heads (12) must divide d_model (767)" in capsys.readouterr().out
    assert run(["check", GPT2, "--set", "decoder.layers[0].repeat=2", "--set", "name=small"]) == 0


def test_a_missing_file_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "nowhere.yaml"]) == 1
    assert "error[SEQ030]" in capsys.readouterr().out


# ---- show, report, diff ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_show_prints_specs(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(path), "--resolved"]) == 0
    printed = capsys.readouterr().out
    assert run(["show", str(saved(printed, path, tmp_path)), "--resolved"]) == 0
    assert capsys.readouterr().out == printed
    assert run(["show", str(path)]) == 0
    again = seqspec.load(saved(capsys.readouterr().out, path, tmp_path))
    assert again.model_dump() == seqspec.load(path).model_dump()


@pytest.mark.parametrize("form", ["text", "mermaid", "dot", "json"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_show_draws_graphs(path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(path), "--graph", form]) == 0
    out = capsys.readouterr().out
    assert run(["show", str(path), "--graph", form]) == 0
    assert capsys.readouterr().out == out
    if form == "json":
        assert json.loads(out)["regions"][-1]["items"]
    if form == "mermaid":
        assert out.startswith("flowchart TD\n")
        assert out.count("subgraph") == sum(line.strip() == "end" for line in out.splitlines())
    if form == "dot":
        assert out.count("{") == out.count("}")


def test_json_says_which_states_are_held(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(HERE.parents[1] / "examples/transformer-base.yaml"), "--graph", "json"]) == 0
    items = [item for region in json.loads(capsys.readouterr().out)["regions"] for item in region["items"]]
    states = [(state["name"], state.get("held")) for item in items for state in item.get("states", ())]
    # a decoder layer's own keys and values grow, those of the encoder are computed once
    caches = [state for state in states if state[0] in ("key", "value")]
    assert sorted(caches, key=str) == [("key", None), ("key", True), ("value", None), ("value", True)]


def test_a_drawing_repeats_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", GPT2, "--graph", "mermaid"]) == 0
    out = capsys.readouterr().out
    assert out.count("q_proj") == 1
    assert "layers.0 … 11   × 12" in out


def test_show_refuses_wrong_specs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", BAD]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Found 4 errors" in captured.err
    assert run(["show", GPT2, "--resolved", "--graph", "text"]) == 2


def test_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", GPT2, "--batch", "2", "--time", "7", "--past", "3", "--dtype", "float16"]) == 0
    out = capsys.readouterr().out
    assert "124,439,808 (124 M)" in out
    assert "248,879,616 bytes" in out
    assert run(["report", GPT2, "--format", "json", "--set", "decoder.layers[0].repeat=1"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 124_439_808 - 11 * 7_087_872
    assert run(["report", GPT2, "--source-time", "3"]) == 2
    assert run(["report", GPT2, "--time", "0"]) == 2


def test_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", GPT2, GPT2]) == 0
    capsys.readouterr()
    assert run(["diff", GPT2, LLAMA]) == 1
    out = capsys.readouterr().out
    assert "~ decoder.layers[0].block[0].heads: 12 -> 32" in out
    assert "parameters: 124,439,808 -> 1,235,814,400 (+1,111,374,592)" in out
    longer = Path(GPT2).read_text().replace("head:", "    - {kind: gru, hidden_size: 768}\nhead:")
    (tmp_path / "longer.yaml").write_text(longer)
    assert run(["diff", GPT2, str(tmp_path / "longer.yaml")]) == 1
    assert "+ decoder.layers[1]: {kind: gru" in capsys.readouterr().out


# ---- explain, schema, init -------------------------------------------------------------------------------------------


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("SEQ201", "201", "seq201", "heads-do-not-divide-width"):
        assert run(["explain", word]) == 0
        assert capsys.readouterr().out.startswith("SEQ201: `heads` does not divide `d_model`.")
    assert run(["explain"]) == 0
    assert "SEQ513" in capsys.readouterr().out
    assert run(["explain", "unknown-feild"]) == 2
    assert "did you mean `unknown-field`?" in capsys.readouterr().err


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"] == "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize("kind", STARTERS)
def test_init(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", kind]) == 0
    assert run(["check", f"{kind}.yaml"]) == 0
    written = Path(f"{kind}.yaml").read_text()
    assert written.startswith("# yaml-language-server: $schema=http")
    Path(f"{kind}.yaml").write_text("mine")
    assert run(["init", kind]) == 1
    assert "error[SEQ403]" in capsys.readouterr().err
    assert Path(f"{kind}.yaml").read_text() == "mine"
    assert run(["init", kind, "-o", "-"]) == 0
    assert capsys.readouterr().out == written
    assert run(["init", kind, "-o", "no/where.yaml"]) == 1


# ---- how commands end ------------------------------------------------------------------------------------------------


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out and text in out.replace("\n" + " " * 12, " ") for name, (_, text) in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert f"Usage: seqspec {name}" in capsys.readouterr().out


WRONG = [["chekc"], ["check"], ["check", "--nope", "x"], ["report", GPT2, "--dtype", "int8"]]


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Error" in captured.err
    assert "did you mean `check`?" in captured.err or arguments != ["chekc"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"seqspec, version {seqspec.__version__}\n"


def test_a_closed_input_is_empty() -> None:
    line = f'"{sys.executable}" -m seqspec check - <&-'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("error[SEQ002]: the file holds no document")


def test_too_little_memory_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: object) -> None:
        raise MemoryError("8 GB")

    monkeypatch.setattr("seqspec.checking.graph_of", fail)
    assert run(["check", GPT2]) == 1
    assert capsys.readouterr().err.startswith("error[SEQ402]: there is too little memory: 8 GB\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(("output", "code", "said"), [(">/dev/full", 1, "error[SEQ404]: standard"), (">&-", 0, "")])
def test_an_output_that_takes_nothing(output: str, code: int, said: str) -> None:
    line = f'"{sys.executable}" -m seqspec check "{GPT2}" {output}'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.startswith(said)
    assert "bug" not in done.stderr


def test_a_bug_is_one_diagnostic(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("seqspec.checking.graph_of", fail)
    assert run(["check", GPT2]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error[SEQ304]: this is a bug in seqspec: ZeroDivisionError: oh\n")
    assert "Traceback" not in err
    monkeypatch.setenv("SEQSPEC_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run(["check", GPT2])


def start(*arguments: str, **more: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(seqspec.__file__).parents[1])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "seqspec", *arguments]
    return subprocess.Popen(command, env=environment, **(pipes | more))  # type: ignore[call-overload, no-any-return]


def unread(pipe: int) -> int:
    """The bytes in a pipe that nobody read yet."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)


def test_a_reader_that_goes_away() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = start("schema", stdout=writer)
    os.close(writer)
    _, err = process.communicate(timeout=60)
    assert err == b""
    assert process.returncode == 1


def test_an_interrupt_is_quiet() -> None:
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
    process = start("check", "-", preexec_fn=heeding)
    assert process.stdin is not None
    process.stdin.write(b"seqspec: 1\n")
    process.stdin.flush()
    while unread(process.stdin.fileno()):  # until it waits for more
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
