"""The document package: YAML 1.2 values, places, limits, `extends`, `--set`."""

from __future__ import annotations

import math
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from seqspec.diagnostics import Report, SpecError
from seqspec.document import Document, Place, load, load_file, load_text
from seqspec.document.compose import Budget, Stop, compose
from seqspec.document.node import plain

FIXTURES = Path(__file__).parent / "fixtures" / "yaml"


def errors(text: str, **more: Any) -> list[tuple[str, int, int]]:
    """(code, line, column) of everything wrong with a text."""
    with pytest.raises(SpecError) as caught:
        load_text(text, **more)
    return [(d.code, d.line, d.column) for d in caught.value.diagnostics]


# One documented value each: YAML 1.2 core.
VALUES: list[tuple[str, object]] = [
    ("1e-5", 1e-5),
    ("5e-6", 5e-6),
    ("1e5", 100000.0),
    ("1E+3", 1000.0),
    ("1.e-5", 1e-5),
    (".5", 0.5),
    ("1.", 1.0),
    ("-0.0", -0.0),
    ("+7", 7),
    ("-7", -7),
    ("010", 10),
    ("017", 17),
    ("08", 8),
    ("0o10", 8),
    ("0o8", "0o8"),
    ("0x1F", 31),
    ("0b11", "0b11"),
    ("1_000", "1_000"),
    ("12:30:45", "12:30:45"),
    ("2024-01-01", "2024-01-01"),
    ("no", "no"),
    ("off", "off"),
    ("yes", "yes"),
    ("on", "on"),
    ("y", "y"),
    ("true", True),
    ("True", True),
    ("FALSE", False),
    ("tRue", "tRue"),
    (".inf", math.inf),
    ("-.inf", -math.inf),
    ("inf", "inf"),
    ("nan", "nan"),
    ("=", "="),
    ("none", "none"),
    ("'1'", "1"),
    ('"null"', "null"),
    ("''", ""),
    ("1e", "1e"),
    ("1.2.3", "1.2.3"),
    ("-", "-"),
    ("\u0661", "\u0661"),  # an Arabic digit is text
    ("😀", "😀"),
    ("1" + "0" * 30, 10**30),
    ("[a, 1, [true]]", ["a", 1, [True]]),
    ("{x: {y: 1}}", {"x": {"y": 1}}),
    ("[]", []),
    ("{}", {}),
    ("a#b", "a#b"),
    ("a #b", "a"),
    ('"\\u2028"', "\u2028"),
]


@pytest.mark.parametrize(("written", "value"), [v for v in VALUES if v[0] != "-"])
@pytest.mark.parametrize("pure", [False, True])
def test_values(written: str, value: object, pure: bool) -> None:
    report = Report()
    root = compose(f"a: {written}\n", "f", Budget(), report, pure=pure)
    found = plain(root)["a"]  # type: ignore[call-overload, index]
    assert not report
    assert (type(found), found) == (type(value), value)


def test_nan_is_a_float() -> None:
    assert math.isnan(load_text("a: .nan\n").data["a"])  # type: ignore[arg-type]


DEEP = "\n".join(" " * level + "a:" for level in range(70)) + " 1\n"
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}], k{i}: 1}}\n" for i in range(1, 60))

# One documented error each: (text, code, line, column).
PITFALLS: list[tuple[str, str, int, int]] = [
    ("\n", "SEQ002", 1, 1),
    ("# only a comment\n", "SEQ002", 1, 1),
    ("---\n", "SEQ002", 1, 1),
    ("a: 1\na: 2\n", "SEQ003", 2, 1),
    ("a: {x: 1, y: 2, x: 3}\n", "SEQ003", 1, 17),
    ("a:\n", "SEQ004", 1, 3),
    ("a: ~\n", "SEQ004", 1, 4),
    ("a: null\n", "SEQ004", 1, 4),
    ("a: [1, NULL]\n", "SEQ004", 1, 8),
    ("a:\n  -\n", "SEQ004", 2, 4),
    ("a: \x00\n", "SEQ006", 1, 4),
    ("a: 1\nb: \x1b[31m\n", "SEQ006", 2, 4),
    ("a: x\u2028b: 1\n", "SEQ006", 1, 5),
    ("a: \ud800\n", "SEQ006", 1, 4),
    ("a:\n\tb: 1\n", "SEQ007", 2, 1),
    ("a: !!str 1\n", "SEQ008", 1, 4),
    ("a: !foo {b: 1}\n", "SEQ008", 1, 4),
    ("a: !!python/object/apply:os.getcwd []\n", "SEQ008", 1, 4),
    ("a: ! 1\n", "SEQ008", 1, 4),
    ("%TAG !e! tag:x\n---\na: 1\n", "SEQ008", 1, 1),
    ("? [a, b]\n: 1\n", "SEQ009", 1, 3),
    ("a: &x b\n*x : 1\n", "SEQ009", 2, 1),
    ("a: 1\n---\nb: 2\n", "SEQ010", 2, 1),
    ("- a\n- b\n", "SEQ011", 1, 1),
    ("word\n", "SEQ011", 1, 1),
    ("a: &a [*a]\n", "SEQ016", 1, 8),
    ("a: &a {b: {c: *a}}\n", "SEQ016", 1, 15),
    ("a: *zz\n", "SEQ017", 1, 4),
    ("a: &x 1\nb: &x 2\n", "SEQ018", 2, 4),
    ("a: {<<: 3}\n", "SEQ019", 1, 9),
    ("a: {<<: [{b: 1}, c]}\n", "SEQ019", 1, 18),
    ("a: " + "9" * 5000 + "\n", "SEQ020", 1, 4),
    ("a: 1e400\n", "SEQ020", 1, 4),
    ("a: -1e-400\n", "SEQ020", 1, 4),
    ("%YAML 1.1\n---\na: 1\n", "SEQ021", 1, 1),
    ("a: [1, 2\n", "SEQ001", 1, 9),
    ("a: {b: 1\n", "SEQ001", 1, 9),
    ("a: b: c\n", "SEQ001", 1, 5),
    ('a: "x\nb: 1\n', "SEQ001", 2, 5),
    ("a: @x\n", "SEQ001", 1, 4),
    ("a:\n  b: 1\n c: 2\n", "SEQ001", 3, 2),
    ("- a\nb: 1\n", "SEQ001", 2, 1),
    ("a: " + "[" * 5000 + "]" * 5000 + "\n", "SEQ013", 1, 0),
    ("a: " + "[" * 500_000 + "\n", "SEQ013", 1, 0),
    (DEEP, "SEQ013", 0, 0),
    ("- " * 300_000 + "\n", "SEQ013", 1, 129),
    (LAUGHS, "SEQ014", 0, 0),
    (MERGES, "SEQ014", 0, 0),
    ("a: [" + "x," * 500_000 + "]\n", "SEQ014", 1, 0),
    ("a: &a 1\nb: [" + "*a," * 300 + "]\n", "SEQ015", 2, 605),
    ("x" * (1 << 20) + "\n", "SEQ012", 1, 1),
    ("".join(f"%TAG !a{i}! x\n" for i in range(60_000)) + "---\na: 1\n", "SEQ008", 1, 1),
]


@pytest.mark.parametrize(("text", "code", "line", "column"), PITFALLS)
def test_pitfalls(text: str, code: str, line: int, column: int) -> None:
    found = errors(text)
    assert found[0][0] == code
    # A zero stands for a place that depends on where the parser noticed.
    assert found[0][1] == line or line == 0
    assert found[0][2] == column or column == 0


@pytest.mark.parametrize("text", [p[0] for p in PITFALLS if len(p[0]) < 20_000])
def test_pure_python_parser_agrees(text: str) -> None:
    """The fallback gives the same codes as libyaml, wherever text reaches a parser at all."""
    if any(code in ("SEQ006", "SEQ011") or "%" in text for code, *_ in errors(text)):
        return
    report = Report()
    try:
        compose(text, "f", Budget(), report, pure=True)
    except Stop:
        assert report
    assert next(iter(report)).code == errors(text)[0][0]


def test_several_findings_in_one_run() -> None:
    text = "a: {b: 1, b: 2}\nc: ~\nd: !x 3\ne: *f\n"
    assert errors(text) == [
        ("SEQ003", 1, 11),
        ("SEQ004", 2, 4),
        ("SEQ008", 3, 4),
        ("SEQ017", 4, 4),
    ]


def test_duplicate_names_both_places() -> None:
    with pytest.raises(SpecError) as caught:
        load_text("a:\n  heads: 4\n  x: 1\n  heads: 8\n")
    (found,) = caught.value.diagnostics
    assert (found.line, found.column, found.end_column) == (4, 3, 8)
    assert found.message == "the key `heads` is given twice, on lines 2 and 4"
    assert found.path == "a.heads"
    (first,) = found.related
    assert (first.span.line, first.span.column, first.span.end_column) == (2, 3, 8)


def test_merge_keys_and_explicit_wins() -> None:
    text = "b: &b {p: 1, q: 2}\nc:\n  <<: *b\n  q: 3\nd: {<<: [{p: 7}, *b]}\n"
    document = load_text(text)
    assert document.data["c"] == {"p": 1, "q": 3}
    assert document.data["d"] == {"p": 7, "q": 2}
    assert document.span(("c", "p")).span.line == 1
    assert errors("a: {<<: {b: 1}, <<: {c: 1}}\n") == [("SEQ003", 1, 17)]
    assert load_text('a: {"<<": 1}\n').data == {"a": {"<<": 1}}


def test_aliases_are_copied() -> None:
    data = load_text("a: &x {b: [1]}\nc: *x\n").data
    assert data["a"] == data["c"]
    assert data["a"] is not data["c"]


def test_keys_are_text() -> None:
    document = load_text("1: a\ntrue: b\nno: c\n~: d\n")
    assert list(document.data) == ["1", "true", "no", "~"]


def test_depth_64_is_accepted_and_65_is_not() -> None:
    assert load_text("a: " + "[" * 63 + "]" * 63 + "\n")
    assert errors("a: " + "[" * 64 + "]" * 64 + "\n")[0][0] == "SEQ013"
    aliased = "a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40 + "\n"
    assert errors(aliased)[0][0] == "SEQ013"


def test_budget_counts_expanded_values() -> None:
    """The limit is a count of values, whatever their form: nothing is built past it."""
    budget = Budget()
    compose("a: &a [1, 2]\nb: [*a, *a]\n", "f", budget, Report())
    # the root, two keys, [1, 2] (3), and the list of two copies (1 + 3 + 3)
    assert Budget().nodes - budget.nodes == 1 + 2 + 3 + 7
    spent = Budget()
    with pytest.raises(Stop):
        compose(LAUGHS, "f", spent, Report())


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("a: 1\n".encode("utf-16"), "SEQ005"),
        ("a: 1\n".encode("utf-16-be"), "SEQ005"),
        ("a: 1\n".encode("utf-32"), "SEQ005"),
        (b"a: 1\nb: \xff\n", "SEQ005"),
        (b"", "SEQ002"),
        (b"a: " + b"x" * (1 << 20), "SEQ012"),
    ],
)
def test_bytes_of_a_file(tmp_path: Path, data: bytes, code: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(data)
    with pytest.raises(SpecError) as caught:
        load_file(path)
    assert caught.value.code == code
    if b"\xff\n" in data:
        assert (caught.value.diagnostics[0].line, caught.value.diagnostics[0].column) == (2, 4)


def test_bom_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    document = load_file(path)
    assert document.data == {"a": 1, "b": 2}
    assert document.span(("b",)).span.line == 2
    assert document.span(("a",), key=True).span.column == 1


# (path, span of the key or None, span of the value) for every node of sample.yaml
SAMPLE: list[tuple[tuple[str | int, ...], tuple[int, ...] | None, tuple[int, ...]]] = [
    ((), None, (2, 1, 12, 9)),
    (("seqspec",), (2, 1, 2, 8), (2, 10, 2, 11)),
    (("name",), (3, 1, 3, 5), (3, 7, 3, 11)),
    (("decoder",), (4, 1, 4, 8), (5, 3, 10, 24)),
    (("decoder", "norm"), (5, 3, 5, 7), (5, 9, 5, 38)),
    (("decoder", "norm", "kind"), (5, 13, 5, 17), (5, 19, 5, 26)),
    (("decoder", "norm", "eps"), (5, 28, 5, 31), (5, 33, 5, 37)),
    (("decoder", "layers"), (6, 3, 6, 9), (7, 5, 10, 24)),
    (("decoder", "layers", 0), None, (7, 7, 10, 24)),
    (("decoder", "layers", 0, "repeat"), (7, 7, 7, 13), (7, 15, 7, 16)),
    (("decoder", "layers", 0, "block"), (8, 7, 8, 12), (9, 9, 10, 24)),
    (("decoder", "layers", 0, "block", 0), None, (9, 11, 9, 32)),
    (("decoder", "layers", 0, "block", 0, "kind"), (9, 12, 9, 16), (9, 18, 9, 21)),
    (("decoder", "layers", 0, "block", 0, "norm"), (9, 23, 9, 27), (5, 9, 5, 38)),
    (("decoder", "layers", 0, "block", 0, "norm", "eps"), (5, 28, 5, 31), (5, 33, 5, 37)),
    (("decoder", "layers", 0, "block", 1), None, (10, 11, 10, 24)),
    (("head",), (12, 1, 12, 5), (12, 7, 12, 9)),
]


@pytest.mark.parametrize(("path", "key", "value"), SAMPLE)
def test_every_span(path: Any, key: Any, value: Any) -> None:
    file = str(FIXTURES / "sample.yaml")
    document = load_file(file)
    place = document.span(path)
    assert (place.file, *_numbers(place)) == (file, *value)
    assert _numbers(document.span(path, key=True)) == (value if key is None else key)
    assert document.has(path)


def _numbers(place: Place) -> tuple[int, ...]:
    span = place.span
    return (span.line, span.column, span.end_line, span.end_column)


def test_nearest_parent() -> None:
    document = load_file(FIXTURES / "sample.yaml")
    assert _numbers(document.span(("decoder", "layers", 0, "zz", 3), key=True)) == (7, 7, 10, 24)
    assert _numbers(document.span(("decoder", "zz"), key=True)) == (4, 1, 4, 8)
    assert not document.has(("decoder", "zz"))
    assert document.span(("decoder", "layers", 7)) == document.span(("decoder", "layers"))
    assert document.span(("decoder", "layers", True)) == document.span(("decoder", "layers"))


LOCS: list[tuple[tuple[str | int, ...], tuple[str | int, ...], tuple[str | int, ...]]] = [
    (("norm", "rmsnorm", "eps"), ("norm", "eps"), ()),
    (("head", "lm", "tied"), ("head",), ("tied",)),  # a bare word is its own tag
    (("head", "lm"), ("head",), ()),
    (("layers", 0, "block", "block", 1, "ffn", "d_ff"), ("layers", 0, "block", 1, "d_ff"), ()),
    (("layers", 0, "Block", "block", 1, "ffn", "gated"), ("layers", 0, "block", 1), ("gated",)),
    (("layers", 0, "block", 0, "heads"), ("layers", 0, "block", 0, "heads"), ()),
    (("layers", 3), ("layers",), (3,)),
    (("encoder",), (), ("encoder",)),
]


@pytest.mark.parametrize(("loc", "path", "rest"), LOCS)
def test_locate_skips_union_tags(loc: Any, path: Any, rest: Any) -> None:
    text = (
        "norm: {kind: rmsnorm, eps: 1e-5}\nhead: lm\nlayers:\n"
        "  - block:\n    - {kind: attention, heads: 8}\n    - {kind: ffn, d_ff: 64}\n"
    )
    found = load_text(text).locate(loc)
    assert (found.path, found.rest) == (path, rest)


SPEC = """\
decoder:
  d_model: 8
  norm: rmsnorm
  input: {kind: tokens, vocab_size: 10}
  mask: causal
  layers:
    - {repeat: 2, block: [{kind: ffn, d_ff: 4}]}
"""

OVERRIDES: list[tuple[str, tuple[str | int, ...], object]] = [
    ("decoder.layers[0].repeat=3", ("decoder", "layers", 0, "repeat"), 3),
    ("decoder.layers[0].block[0].d_ff=1e3", ("decoder", "layers", 0, "block", 0, "d_ff"), 1000.0),
    ("decoder.norm.eps=1e-6", ("decoder", "norm"), {"kind": "rmsnorm", "eps": 1e-6}),
    ("decoder.norm={kind: layernorm, eps: 1.0}", ("decoder", "norm", "kind"), "layernorm"),
    ("decoder.input=features", ("decoder", "input"), "features"),
    (
        "decoder.input={vocab_size: 99}",
        ("decoder", "input"),
        {"kind": "tokens", "vocab_size": 99},
    ),
    (
        "decoder.input={kind: features, size: 3}",
        ("decoder", "input"),
        {"kind": "features", "size": 3},
    ),
    ("decoder.mask={any: [causal]}", ("decoder", "mask"), {"any": ["causal"]}),
    ("defaults.deep.er=[1, {a: no}]", ("defaults", "deep", "er"), [1, {"a": "no"}]),
    ("decoder.layers=[]", ("decoder", "layers"), []),
    ("name='a=b'", ("name",), "a=b"),
]


@pytest.mark.parametrize(("expression", "path", "value"), OVERRIDES)
def test_overrides(expression: str, path: Any, value: object) -> None:
    document = load_text(SPEC, overrides=["name=x", expression])
    found: Any = document.data
    for part in path:
        found = found[part]
    assert found == value


def test_override_places_show_the_expression() -> None:
    document = load_text(SPEC, overrides=["name=x", "decoder.layers[0].repeat=3", "a.b=[1,\n 2]", "c=5"])
    file, span = document.span(("decoder", "layers", 0, "repeat"))
    assert (file, span.line, span.column, span.end_column) == ("--set", 2, 26, 27)
    assert document.sources["--set"].split("\n")[1][25:26] == "3"
    assert _numbers(document.span(("a", "b"), key=True)) == (3, 3, 3, 4)
    assert document.span(("c",)).span.line == 5
    assert document.span(("decoder", "d_model")).file == "<text>"


BAD_OVERRIDES: list[tuple[str, str, int]] = [
    ("decoder.layers[1].repeat=3", "SEQ041", 16),
    ("decoder.nothing[0]=3", "SEQ041", 17),
    ("decoder.d_model.x=3", "SEQ042", 17),
    ("decoder[0]=3", "SEQ042", 9),
    ("decoder.layers.x=3", "SEQ042", 16),
    ("decoder", "SEQ040", 1),
    ("=3", "SEQ040", 1),
    ("[0]=3", "SEQ040", 1),
    ("a..b=3", "SEQ040", 1),
    ("a[-1]=3", "SEQ040", 1),
    ("a b=3", "SEQ040", 1),
    ("a.b=", "SEQ004", 5),
    ("a=[1", "SEQ001", 5),
    ("a=1e999", "SEQ020", 3),
    ("a={b: 1, b: 2}", "SEQ003", 10),
    ("a=\x1b", "SEQ006", 1),
    ("a=b: c", "SEQ040", 3),
    ("a=- b", "SEQ040", 3),
    ("extends=base.yaml", "SEQ040", 1),
    (".".join("a" * 70) + "=1", "SEQ040", 1),
]


@pytest.mark.parametrize(("expression", "code", "column"), BAD_OVERRIDES)
def test_bad_overrides(expression: str, code: str, column: int) -> None:
    with pytest.raises(SpecError) as caught:
        load_text(SPEC, overrides=[expression])
    found = caught.value.diagnostics[0]
    assert (found.code, found.file, found.line, found.column) == (code, "--set", 1, column)


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def extended(folder: Path, name: str = "a") -> Document:
    return load_file(folder / f"{name}.yaml")


def test_extends_merges_and_keeps_places(tmp_path: Path) -> None:
    write(
        tmp_path,
        a="extends: b.yaml\nn: {eps: 2}\nl: [9]\np: {kind: rope}\nw: {eps: 1}\n",
        b="n: {kind: rmsnorm, eps: 1}\nl: [1, 2]\np: {kind: alibi, x: 1}\nw: layernorm\nz: 0\n",
    )
    document = extended(tmp_path)
    assert document.data == {
        "n": {"kind": "rmsnorm", "eps": 2},
        "l": [9],
        "p": {"kind": "rope"},
        "w": {"kind": "layernorm", "eps": 1},
        "z": 0,
    }
    assert Path(document.span(("n", "kind")).file).name == "b.yaml"
    assert Path(document.span(("n", "eps")).file).name == "a.yaml"
    assert Path(document.span(("w", "kind")).file).name == "b.yaml"
    assert sorted(Path(name).name for name in document.sources) == ["a.yaml", "b.yaml"]


def test_extends_may_go_up_inside_the_folder(tmp_path: Path) -> None:
    write(tmp_path, a="extends: sub/b.yaml\n", sub__b="extends: ../c.yaml\nx: 1\n", c="y: 2\n")
    assert extended(tmp_path).data == {"y": 2, "x": 1}


def test_error_in_a_base_is_shown_in_the_base(tmp_path: Path) -> None:
    write(tmp_path, a="extends: b.yaml\n", b="x: 1\nx: 2\n")
    with pytest.raises(SpecError) as caught:
        extended(tmp_path)
    (found,) = caught.value.diagnostics
    assert (Path(found.file).name, found.line) == ("b.yaml", 2)


HOSTILE: list[tuple[str, str]] = [
    ("/etc/passwd", "SEQ032"),
    ("~/base.yaml", "SEQ032"),
    ("https://example.org/a.yaml", "SEQ032"),
    ("'C:/base.yaml'", "SEQ032"),
    ("'..\\base.yaml'", "SEQ032"),
    ('"a\\0b"', "SEQ032"),
    ("''", "SEQ032"),
    ("[b.yaml]", "SEQ032"),
    ("../outside.yaml", "SEQ033"),
    ("sub/../../outside.yaml", "SEQ033"),
    ("link.yaml", "SEQ033"),
    ("linked_folder/outside.yaml", "SEQ033"),
    (".", "SEQ031"),
    ("fifo", "SEQ031"),
    ("socket", "SEQ031"),
    ("device", "SEQ033"),
    ("loop.yaml", "SEQ03"),
    ("nothing.yaml", "SEQ030"),
    ("a.yaml", "SEQ034"),
    ("x" * 5000, "SEQ030"),
]


@pytest.mark.parametrize(("written", "code"), HOSTILE)
def test_hostile_extends(tmp_path: Path, written: str, code: str) -> None:
    folder = tmp_path / "in"
    write(tmp_path, outside="x: 1\n", in__a=f"name: m\nextends: {written}\n")
    (folder / "sub").mkdir()
    (folder / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    (folder / "linked_folder").symlink_to(tmp_path)
    (folder / "loop.yaml").symlink_to(folder / "loop.yaml")
    (folder / "device").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo")
    here = os.getcwd()
    os.chdir(folder)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
            with pytest.raises(SpecError) as caught:
                load_file("a.yaml")
    finally:
        os.chdir(here)
    (found,) = caught.value.diagnostics
    assert found.code.startswith(code)
    assert (found.file, found.line, found.column) == ("a.yaml", 2, 10)


def test_extends_circle_is_named(tmp_path: Path) -> None:
    write(tmp_path, a="extends: b.yaml\n", b="extends: c.yaml\n", c="extends: b.yaml\n")
    with pytest.raises(SpecError) as caught:
        extended(tmp_path)
    (found,) = caught.value.diagnostics
    assert found.code == "SEQ034"
    names = [Path(name.strip()).name for name in found.message.partition(": ")[2].split("->")]
    assert names == ["b.yaml", "c.yaml", "b.yaml"]


def test_extends_chain_is_limited(tmp_path: Path) -> None:
    files = {f"f{i}": f"extends: f{i + 1}.yaml\n" for i in range(15)}
    write(tmp_path, **files, f15="x: 1\n")
    assert extended(tmp_path, "f0").data == {"x": 1}
    write(tmp_path, f15="extends: f16.yaml\n", f16="x: 1\n")
    with pytest.raises(SpecError) as caught:
        extended(tmp_path, "f0")
    assert caught.value.code == "SEQ035"


def test_text_cannot_extend() -> None:
    assert errors("extends: a.yaml\n") == [("SEQ036", 1, 10)]


@pytest.mark.parametrize("path", ["/nowhere/a.yaml", ".", "/dev/zero", "a\0b"])
def test_paths_that_are_no_files(path: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(path)
    assert caught.value.code in ("SEQ030", "SEQ031")
    assert str(caught.value)


def test_diagnostic_at_a_path() -> None:
    document = load_text(SPEC)
    found = document.diagnostic(
        "SEQ101",
        "x",
        ("decoder", "d_model"),
        key=True,
        replacement="size",
        related=[("see", ("decoder", "norm"))],
    )
    assert (found.line, found.column, found.path) == (2, 3, "decoder.d_model")
    assert found.fix is not None
    assert (found.fix.text, found.fix.span) == ("size", found.span)
    assert found.related[0].span.line == 3
