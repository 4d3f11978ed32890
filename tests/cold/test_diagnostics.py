"""Diagnostics: the table, the records, the report, suggestions, and what the renderers print."""

from __future__ import annotations

import io
import json
import pickle
import re
import subprocess
import sys
import unicodedata
from dataclasses import FrozenInstanceError

import pytest
import yaml

from seqspec.diagnostics import (
    CODES,
    MAX_SHOWN,
    CompileError,
    Diagnostic,
    Fix,
    Related,
    Report,
    RuntimeFault,
    SeqspecError,
    Span,
    SpecError,
    did_you_mean,
    escape,
    find_code,
    format_path,
    quoted,
    suggest,
)
from seqspec.diagnostics.render import FORMATS, github, text
from seqspec.diagnostics.render import json as json_format

SOURCE = "seqspec: 1\ndecoder:\n  heads: 8\n  heads: 4  # 😀\n"
DUPLICATE = Diagnostic(
    "SEQ003",
    "the key `heads` is given twice",
    "specs/a.yaml",
    Span(4, 3, 4, 8),
    path="decoder.heads",
    hint="delete one of the two",
    related=(Related("first given here", "specs/a.yaml", Span(3, 3, 3, 8)),),
    fix=Fix("kv_heads", "specs/a.yaml", Span(4, 3, 4, 8)),
)
WARNING = Diagnostic("SEQ238", "not the same in steps", "specs/a.yaml", Span(1, 1, 1, 8))


# The table


def test_the_table_is_well_formed() -> None:
    slugs = [entry.slug for entry in CODES.values()]
    assert len(set(slugs)) == len(slugs)
    for code, entry in CODES.items():
        assert re.fullmatch(r"SEQ[0-5][0-9]{2}", code)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.slug)
        assert entry.title.endswith(".")
        assert entry.explanation.endswith(".")
        assert "\n" not in entry.title
        assert bool(entry.bad) <= bool(entry.good)


@pytest.mark.parametrize("code", [code for code in CODES if "SEQ003" <= code < "SEQ300"])
def test_good_examples_are_yaml(code: str) -> None:
    entry = CODES[code]
    if not entry.good.startswith("--set"):
        yaml.safe_load(entry.good)
    assert entry.bad != entry.good or not entry.bad


@pytest.mark.parametrize("code", [f"SEQ{n:03}" for n in (*range(1, 5), *range(7, 12), *range(16, 22))])
def test_bad_examples_give_their_code(code: str) -> None:
    from seqspec.document import load_text

    with pytest.raises(SpecError) as caught:
        load_text(CODES[code].bad + "\n")
    assert caught.value.code == code
    if code != "SEQ011":
        load_text(CODES[code].good + "\n")


def test_find_code() -> None:
    for asked in ("SEQ101", "seq101", "101", " unknown-field ", "unknown_field"):
        found = find_code(asked)
        assert found is not None
        assert found[0] == "SEQ101"
    assert find_code("3") == ("SEQ003", CODES["SEQ003"])
    assert find_code("nothing") is None


# Records


def test_diagnostics_are_frozen_and_know_their_code() -> None:
    assert (DUPLICATE.line, DUPLICATE.column) == (4, 3)
    assert (DUPLICATE.end_line, DUPLICATE.end_column) == (4, 8)
    assert (DUPLICATE.severity, DUPLICATE.slug) == ("error", "duplicate-key")
    assert WARNING.severity == "warning"
    with pytest.raises(FrozenInstanceError):
        DUPLICATE.message = "x"  # type: ignore[misc]
    with pytest.raises(KeyError):
        Diagnostic("SEQ999", "no such code")


def test_format_path() -> None:
    assert format_path(("decoder", "layers", 0, "block", 1, "heads")) == ("decoder.layers[0].block[1].heads")
    assert format_path(()) == ""


@pytest.mark.parametrize("character", ["x", "é", "😀", "\x1b", "\u202e"])
def test_messages_are_at_most_4_kb(character: str) -> None:
    message = Diagnostic("SEQ199", character * 100_000).message
    assert len(message.encode()) <= 4096
    assert message.endswith("…")


def test_errors_pickle_and_print() -> None:
    error = SpecError([DUPLICATE, WARNING], {"specs/a.yaml": SOURCE}, hidden=3)
    again = pickle.loads(pickle.dumps(error))
    assert again.diagnostics == error.diagnostics == (DUPLICATE, WARNING)
    assert (again.code, again.hidden, str(again)) == ("SEQ003", 3, str(error))
    for kind in (CompileError, RuntimeFault):
        plain = kind("SEQ401", "torch is not installed", "pip install torch")
        again = pickle.loads(pickle.dumps(plain))
        assert type(again) is kind
        assert isinstance(again, SeqspecError)
        assert again.diagnostics == plain.diagnostics
        assert str(again) == ("error[SEQ401]: torch is not installed\n  = help: pip install torch\n")


# The report


def test_report_sorts_dedupes_and_caps() -> None:
    many = [Diagnostic("SEQ199", "x", "f", Span(n, 1, n, 2)) for n in range(250, 0, -1)]
    report = Report([*many, *many])
    shown = list(report)
    assert (len(report), len(shown), report.hidden) == (250, MAX_SHOWN, 150)
    assert [d.line for d in shown] == list(range(1, 101))
    assert "150 more not shown" in text.render(report, {})
    with pytest.raises(SpecError) as caught:
        report.raise_errors({})
    assert caught.value.hidden == 150


def test_report_shows_errors_before_warnings_when_it_must_choose() -> None:
    warnings = [WARNING.replace(span=Span(n, 1, n, 2)) for n in range(1, 150)]
    report = Report([*warnings, DUPLICATE.replace(span=Span(999, 1, 999, 2))])
    assert any(d.severity == "error" for d in report)


def test_warnings_alone_do_not_raise() -> None:
    report = Report([WARNING])
    report.raise_errors({})
    assert report
    assert not report.has_errors


# Suggestions


@pytest.mark.parametrize("word", ["dropuot", "Dropout", "drop_out", "drop-out", "DROPOUT", "droput"])
def test_suggest(word: str) -> None:
    known = ["d_model", "dropout", "heads", "kv_heads"]
    assert suggest(word, known) == "dropout"
    assert did_you_mean(word, known) == "did you mean `dropout`?"


def test_no_suggestion() -> None:
    assert suggest("zzz", ["dropout"]) is None
    assert suggest("x" * 100_000, ["dropout"]) is None
    assert suggest("", ["dropout"]) is None
    assert did_you_mean("zzz", ["a", "b"]) == "known: `a`, `b`"
    assert did_you_mean("zzz", []) is None
    assert suggest(3, ["3d"]) in (None, "3d")


# Renderers

GOLDEN_TEXT = """\
warning[SEQ238]: not the same in steps
 --> specs/a.yaml:1:1
  |
1 | seqspec: 1
  | ^^^^^^^

error[SEQ003]: the key `heads` is given twice
 --> specs/a.yaml:4:3
  |
3 |   heads: 8
  |   ----- first given here
4 |   heads: 4  # 😀
  |   ^^^^^
  = help: delete one of the two

Found 1 error and 1 warning in 1 file.
"""

GOLDEN_GITHUB = (
    "::error title=seqspec SEQ003 (duplicate-key),file=specs/a.yaml,line=4,col=3,endLine=4,"
    "endColumn=8::the key `heads` is given twice; delete one of the two\n"
    "::warning title=seqspec SEQ238 (cache-not-equivalent),file=specs/a.yaml,line=1,col=1,"
    "endLine=1,endColumn=8::not the same in steps\n"
    "Found 1 error and 1 warning in 1 file.\n"
)


def test_text() -> None:
    report = Report([DUPLICATE, WARNING])
    assert text.render(report, {"specs/a.yaml": SOURCE}) == GOLDEN_TEXT
    coloured = text.render(report, {"specs/a.yaml": SOURCE}, colour=True)
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == GOLDEN_TEXT
    assert coloured != GOLDEN_TEXT
    assert text.render(Report(), {}) == ""


def test_github() -> None:
    assert github.render(Report([DUPLICATE, WARNING]), {}) == GOLDEN_GITHUB
    odd = Diagnostic("SEQ199", "50% a:b,c\nd", "x:y,z%.yaml")
    (line, _) = github.render(Report([odd]), {}).splitlines()
    assert "file=x%3Ay%2Cz%25.yaml," in line
    assert line.endswith("::50%25 a:b,c\\nd")
    pseudo = github.render(Report([odd.replace(file="--set")]), {})
    assert "file=" not in pseudo
    assert "::--set:1:1: 50%25" in pseudo


def test_json() -> None:
    found = json.loads(json_format.render(Report([DUPLICATE]), {}))
    assert found == {
        "version": 1,
        "hidden": 0,
        "diagnostics": [
            {
                "code": "SEQ003",
                "slug": "duplicate-key",
                "severity": "error",
                "message": "the key `heads` is given twice",
                "title": "A mapping has the same key twice.",
                "file": "specs/a.yaml",
                "line": 4,
                "column": 3,
                "end_line": 4,
                "end_column": 8,
                "path": "decoder.heads",
                "hint": "delete one of the two",
                "related": [
                    {
                        "message": "first given here",
                        "file": "specs/a.yaml",
                        "line": 3,
                        "column": 3,
                        "end_line": 3,
                        "end_column": 8,
                    }
                ],
                "fix": {
                    "text": "kv_heads",
                    "file": "specs/a.yaml",
                    "line": 4,
                    "column": 3,
                    "end_line": 4,
                    "end_column": 8,
                },
            }
        ],
    }


def test_places_in_two_files() -> None:
    found = Diagnostic("SEQ204", "x", "a", Span(1, 4, 1, 5), related=(Related("y", "b", Span(12, 1, 12, 2)),))
    shown = text.render(Report([found]), {"a": "a: 1\n", "b": "\n" * 11 + "b: 2\n"})
    assert shown == (
        "error[SEQ204]: x\n  --> a:1:4\n   |\n 1 | a: 1\n   |    ^\n  ::: b:12:1\n   |\n12 | b: 2\n   | - y\n"
    )


@pytest.mark.parametrize(
    ("line", "column", "end", "shown", "carets"),
    [
        ("a: 日本 x", 4, 6, "a: 日本 x", "   ^^^^"),  # wide characters take two cells
        ("e\u0301: x", 5, 6, "e\u0301: x", "   ^"),  # combining ones none
        ("a: \u202ex y", 4, 5, "a: \\u202ex y", "   ^^^^^^"),  # escapes as they are shown
        ("\ta: x", 5, 6, " a: x", "    ^"),
    ],
)
def test_carets_follow_what_is_shown(line: str, column: int, end: int, shown: str, carets: str) -> None:
    found = Diagnostic("SEQ199", "x", "f", Span(1, column, 1, end))
    rows = text.render(Report([found]), {"f": line}).splitlines()
    assert rows[3:5] == [f"1 | {shown}", f"  | {carets}"]


def test_long_lines_and_spans_are_cut() -> None:
    found = Diagnostic("SEQ199", "x", "f", Span(1, 500_001, 9, 1))
    rows = text.render(Report([found]), {"f": "x" * 1_000_000}).splitlines()
    assert all(len(row) < 200 for row in rows)
    assert rows[4].index("^") == rows[3].index("…") + 1 + 60


def test_place_behind_the_text() -> None:
    for span in (Span(99, 1, 99, 2), Span(1, 99, 1, 100)):
        assert "f:" in text.render(Report([Diagnostic("SEQ199", "x", "f", span)]), {"f": "a: 1"})


HOSTILE = "".join(map(chr, [*range(32), *range(0x7F, 0xA0), 0x200B, 0x202E, 0x2066, 0xFEFF, 0xD800]))


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_text_is_escaped(name: str) -> None:
    found = Diagnostic(
        "SEQ199",
        f"m{HOSTILE}",
        f"f{HOSTILE}",
        path=f"p{HOSTILE}",
        hint=f"h{HOSTILE}",
        label=f"l{HOSTILE}",
        related=(Related(f"r{HOSTILE}", f"g{HOSTILE}", Span(1, 1, 1, 2)),),
        fix=Fix(f"x{HOSTILE}", f"f{HOSTILE}", Span(1, 1, 1, 2)),
    )
    sources = {f"f{HOSTILE}": f"s{HOSTILE}", f"g{HOSTILE}": f"t{HOSTILE}"}
    out = FORMATS[name](Report([found]), sources)
    hidden = {c for c in out if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert hidden <= {"\n"}
    out.encode()


def test_no_line_of_text_starts_a_github_command() -> None:
    source = "::error::stolen\n::set-output name=x::y\n"
    found = Diagnostic("SEQ199", "::warning::x", "f", Span(1, 1, 2, 3), hint="\n::error::x")
    out = text.render(Report([found]), {"f": source})
    assert not any(line.startswith("::") for line in out.splitlines())


def test_escape_is_stable() -> None:
    once = escape(HOSTILE)
    assert escape(once) == once
    assert escape("é 日本 [bold]") == "é 日本 [bold]"
    assert quoted("x" * 500) == "`" + "x" * 59 + "…`"
    assert quoted(True) == "`True`"


def test_colour_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert not text.wants_colour(stream)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert text.wants_colour(stream)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not text.wants_colour(stream)


def test_imports_only_the_standard_library_and_yaml() -> None:
    code = (
        "import sys, seqspec.diagnostics.render\n"
        "assert 'yaml' not in sys.modules\n"
        "import seqspec.document\n"
        "heavy = {'torch', 'onnx', 'numpy', 'networkx', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
