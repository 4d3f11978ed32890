"""From a file to a checked model and graph: what is accepted, and every finding at its line and column."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from call_counts import count_calls
from specs import EXAMPLES, HERE, INVALID, SOUND

import seqspec
from seqspec import SpecError
from seqspec.checking import Checked, examine
from seqspec.components.base import Finding
from seqspec.diagnostics import CODES
from seqspec.graph.types import ShapeError

TINY = """\
seqspec: 1
name: tiny
decoder:
  input: {kind: tokens, vocab_size: 100}
  d_model: 16
  layers:
    - block: [{kind: attention, heads: 4}, {kind: ffn, d_ff: 32}]
head: lm
"""


def places(found: Checked) -> list[str]:
    return [f"{d.code} {d.line}:{d.column}" for d in found.report]


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_sound_specs_have_a_graph(path: Path) -> None:
    found = examine(path)
    # said of every row that is longer than a `dynamic` or `longrope` was trained for
    assert [place for place in places(found) if not place.startswith("SEQ238")] == []
    assert found.graph is not None


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_faults_are_found_where_they_are(path: Path) -> None:
    expected = path.read_text().partition("\n")[0].removeprefix("# ").split(", ")
    assert places(examine(path)) == expected


def test_there_are_fixtures() -> None:
    assert len(INVALID) >= 60
    assert len({code for path in INVALID for code in re.findall(r"SEQ\d+", path.read_text().partition("\n")[0])}) >= 35


def test_the_target_specs_are_the_examples() -> None:
    names = {"lstm-sentiment", "gru-forecast", "nmt-bahdanau", "transformer-base", "gpt2", "llama-3.2-1b", "minilm"}
    names |= {"hybrid-window", "longformer-tiny", "alibi-decoder", "speech-to-text", "captioner"}
    assert names <= {path.stem for path in EXAMPLES}


# ---- load ------------------------------------------------------------------------------------------------------------


def test_load_gives_the_written_model() -> None:
    model = seqspec.load(TINY)
    assert model.decoder is not None
    assert model.decoder.norm is None
    resolved = model.resolved().decoder
    assert resolved is not None
    assert resolved.norm is not None


def test_load_raises_everything_sorted() -> None:
    with pytest.raises(SpecError) as raised:
        seqspec.load(TINY.replace("heads: 4", "heads: '4'").replace("d_model: 16", "d_model: 1.5"))
    found = raised.value.diagnostics
    assert [(d.code, d.line, d.column) for d in found] == [("SEQ104", 5, 12), ("SEQ115", 7, 40)]
    assert "heads: '4'" in str(raised.value)


def test_overrides_join_the_spec_and_have_places() -> None:
    assert seqspec.load(TINY, ["decoder.d_model=32"]).stacks["decoder"].d_model == 32
    (found,) = seqspec.check(TINY, ["decoder.d_model=33"])
    assert (found.code, found.file) == ("SEQ201", "<text>")
    (found,) = seqspec.check(TINY, ["decoder.d_model=x"])
    assert (found.code, found.file, found.line, found.column) == ("SEQ104", "--set", 1, 17)


def test_a_fault_in_the_base_is_shown_in_the_base(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(TINY.replace("heads: 4", "heads: 3"))
    (tmp_path / "child.yaml").write_text("extends: base.yaml\nname: child\n")
    (found,) = seqspec.check(tmp_path / "child.yaml")
    assert (found.code, Path(found.file).name, found.line, found.column) == ("SEQ201", "base.yaml", 7, 40)


def test_what_is_inherited_is_shown_where_it_is_written() -> None:
    text = TINY.replace("decoder:", "defaults: {mask: none}\ndecoder:")
    assert places(examine(text)) == ["SEQ113 3:12"]
    (found,) = seqspec.check(TINY.replace("decoder:", "defaults: {position: {kind: rope, fraction: 0.75}}\ndecoder:"))
    assert (found.code, found.line, found.column) == ("SEQ203", 3, 22)
    assert found.related[0].span.line == 8


def test_a_missing_check_is_a_diagnostic_at_the_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise ShapeError("3 is not 4", "decoder.layers[0]")

    monkeypatch.setattr("seqspec.checking.graph_of", fail)
    found = examine(TINY)
    assert places(found) == ["SEQ301 7:7"]
    assert found.graph is None


# ---- from Python -----------------------------------------------------------------------------------------------------


def as_mapping(**changes: Any) -> dict[str, Any]:
    layer = {"kind": "gru", "hidden_size": 4, **changes}
    return {"seqspec": 1, "name": "x", "encoder": {"input": {"kind": "features", "size": 2}, "layers": [layer]}}


def test_a_mapping_is_a_spec() -> None:
    assert seqspec.load(as_mapping()).name == "x"
    assert seqspec.load(as_mapping(), ["encoder.layers[0].hidden_size=7"]).stacks["encoder"].facts({}).width == 7
    tuples = as_mapping()
    tuples["encoder"]["layers"] = tuple(tuples["encoder"]["layers"])
    assert seqspec.load(tuples).encoder is not None


@pytest.mark.parametrize(
    ("changes", "code", "path"),
    [
        ({"hidden_size": "4"}, "SEQ115", "encoder.layers[0].hidden_size"),
        ({"hiddensize": 4}, "SEQ101", "encoder.layers[0].hiddensize"),
        ({"hidden_size": None}, "SEQ004", "encoder.layers[0].hidden_size"),
        ({"hidden_size": {1, 2}}, "SEQ116", "encoder.layers[0].hidden_size"),
        ({3: 4}, "SEQ116", "encoder.layers[0]"),
        ({"dropout": 0.5}, "SEQ209", "encoder.layers[0].dropout"),
    ],
)
def test_places_of_a_mapping_are_paths(changes: dict[Any, Any], code: str, path: str) -> None:
    spec = as_mapping()
    spec["encoder"]["layers"][0].update(changes)
    (found,) = seqspec.check(spec)
    assert (found.code, found.path, found.file) == (code, path, "")
    with pytest.raises(SpecError, match=re.escape(path)):
        seqspec.load(spec)


def test_values_that_only_look_plain_are_refused() -> None:
    class Odd(int):
        pass

    (found,) = seqspec.check(as_mapping(hidden_size=Odd(3)))
    assert found.code == "SEQ116"


def test_a_circle_is_refused() -> None:
    spec = as_mapping()
    spec["encoder"]["again"] = spec["encoder"]
    assert {d.code for d in seqspec.check(spec)} == {"SEQ116"}
    assert [d.code for d in seqspec.check({**as_mapping(), "extends": "base.yaml"})] == ["SEQ036"]


# ---- sizes -----------------------------------------------------------------------------------------------------------


def test_a_number_too_long_to_be_written_is_told() -> None:
    (found,) = seqspec.check(as_mapping() | {"seqspec": 10**5000})
    assert found.code == "SEQ111"
    assert "0x31e2080103" in found.message


@pytest.mark.parametrize("width", [10**6, 10**14])
def test_enormous_models_check_quickly(width: int) -> None:
    text = TINY.replace("d_model: 16", f"d_model: {width}").replace("- block", "- repeat: 100\n      block")
    tracemalloc.start()
    summary = seqspec.report(seqspec.load(text))
    assert tracemalloc.get_traced_memory()[1] < 60e6
    tracemalloc.stop()
    per_layer = 4 * width**2 + 4 * width + 2 * 32 * width + 32 + width + 4 * width
    assert summary.parameters == 100 * per_layer + 2 * 100 * width + 2 * width


def test_ten_thousand_layers() -> None:
    def check(count: int) -> None:
        assert not len(seqspec.check(TINY.replace("- block", f"- repeat: {count}\n      block")))

    check(10)
    assert count_calls(lambda: check(10_000)) < 4.5 * count_calls(lambda: check(2500))
    (found,) = seqspec.check(TINY.replace("- block", "- repeat: 10001\n      block"))
    assert (found.code, found.line, found.column) == ("SEQ306", 7, 15)


def test_thousands_of_entries_take_linear_time() -> None:
    def check(count: int) -> None:
        entries = "".join(f"    - block: [{{kind: ffn, d_ff: {n + 1}}}]\n" for n in range(count))
        assert not len(seqspec.check(re.sub(r"    - block.*\n", entries, TINY)))

    check(10)
    assert count_calls(lambda: check(1000)) < 4.5 * count_calls(lambda: check(250))  # quadratic would be 16 times


def test_thousands_of_faults_are_counted() -> None:
    entries = "".join("    - {kind: gru, hiddensize: 3}\n" for _ in range(3000))
    report = seqspec.check(re.sub(r"    - block.*\n", entries, TINY))
    assert len(report) == 3000
    assert len(list(report)) == 100


# ---- codes -----------------------------------------------------------------------------------------------------------


def test_every_finding_has_a_code() -> None:
    """The codes that components and the model name exist."""
    source = HERE.parents[1] / "seqspec"
    files = [*(source / "components").glob("*.py"), *(source / "spec").glob("*.py")]
    named = {code for file in files for code in re.findall(r'"(SEQ\d{3})"', file.read_text())}
    assert len(named) > 40
    assert named <= set(CODES)
    assert Finding("SEQ201", ("a",), "b").under("c").path == ("c", "a")
