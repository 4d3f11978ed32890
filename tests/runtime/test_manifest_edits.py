"""Every entry of a manifest, changed in many ways: noticed, or harmless, and never an error of Python's own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_targets import Compiled, inputs

import seqspec
from seqspec import api
from seqspec.backends.directory import digest
from seqspec.diagnostics import SeqspecError

Get = Callable[[str], Compiled]
Place = tuple[str | int, ...]
ODD: list[Any] = [None, True, -1, 2**70, 1.5, "", "x", "float32", "input_ids", [], {"x": 1}]


def copied(data: Any) -> Any:
    """What JSON can hold, anew."""
    return json.loads(json.dumps(data))


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    """Every place in plain data, but the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*here, key)
        yield from places(inner, (*here, key))


def edits(data: dict[str, Any]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The data with one entry replaced, left out, renamed, doubled or turned round."""
    for number, place in enumerate(places(data)):
        for odd in (ODD[(number + step) % len(ODD)] for step in range(4)):
            changed = copied(data)
            parent, before = found(changed, place)
            if type(odd) is type(before) and odd == before:
                continue
            parent[place[-1]] = odd
            yield place, changed
        yield place, less(data, place)
        yield from more(data, place)


def less(data: dict[str, Any], place: Place) -> dict[str, Any]:
    changed = copied(data)
    del found(changed, place)[0][place[-1]]
    return changed


def more(data: dict[str, Any], place: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    """One more of what is there: a letter, a number, an entry."""
    changed = copied(data)
    parent, value = found(changed, place)
    if isinstance(value, str):
        parent[place[-1]] = value + "0"
    elif isinstance(value, dict):
        value["another"] = 1
    elif isinstance(value, list) and value:
        value.append(copied(value[0]))
    elif isinstance(value, bool):
        parent[place[-1]] = not value
    elif isinstance(value, int):
        parent[place[-1]] = value + 1
    if changed != data:
        yield place, changed
    if isinstance(value, dict | list) and len(value) > 1:
        turned = dict(reversed(value.items())) if isinstance(value, dict) else value[::-1]
        parent[place[-1]] = turned
        if json.dumps(changed) != json.dumps(data):
            yield place, changed


def found(data: Any, place: Place) -> tuple[Any, Any]:
    for key in place[:-1]:
        data = data[key]
    return data, data[place[-1]]


def opened(folder: Path, data: dict[str, Any], name: str) -> str:
    """The code of what went wrong when the model was opened and run, or nothing."""
    (folder / "seqspec.json").write_text(json.dumps(data))
    error = None
    try:
        session = seqspec.Session(folder)
        session.run(inputs(name, np.random.default_rng(0), 2, 3))
    except SeqspecError as caught:
        error = caught
    assert error is None or error.code != "SEQ507" or "seqspec.json" in str(error)
    return "" if error is None else error.code


@pytest.fixture
def folder(compiled: Get, tmp_path: Path) -> Callable[[str], tuple[Path, dict[str, Any]]]:
    def get(name: str) -> tuple[Path, dict[str, Any]]:
        made = shutil.copytree(compiled(name).folder, tmp_path / "copy")
        return made, json.loads((made / "seqspec.json").read_text())

    return get


def test_every_change_is_noticed(folder: Callable[[str], tuple[Path, dict[str, Any]]]) -> None:
    place, data = folder("gru-forecast")
    assert opened(place, data, "gru-forecast") == ""
    count = 0
    for where, changed in edits(data):
        assert opened(place, changed, "gru-forecast") in ("SEQ507", "SEQ508"), where
        count += 1
    assert count > 300


@pytest.mark.parametrize(("name", "stride"), [("gru-forecast", 2), ("nmt-luong", 9)])
def test_changes_that_are_signed(folder: Callable[[str], tuple[Path, dict[str, Any]]], name: str, stride: int) -> None:
    """With a hash of the changed manifest itself: what files take and give must still be what it says."""
    place, data = folder(name)
    compared = ("name", "shape", "dtype", "past", "present", "held", "starts")
    fine = 0
    signed = [edit for edit in edits(data) if edit[0][0] not in ("sha256", "versions", "forms", "files")]
    for where, changed in signed[::stride]:
        code = opened(place, changed | {"sha256": digest(changed)}, name)
        assert code == "" or code.startswith("SEQ5"), (where, code)
        fine += code == ""
        shown = where[:2] == ("signature", "outputs") and "shape" in where  # which onnxruntime infers anew
        if where[0] == "signature" and {*where} & {*compared} and not shown:
            # what `float` is in this model
            same = found(data, where)[1] == "float" and found(changed, where[:-1])[1].get("dtype") == "float32"
            assert code == ("" if same else "SEQ507"), where
    assert fine


def test_every_byte_counts(folder: Callable[[str], tuple[Path, dict[str, Any]]]) -> None:
    place, _ = folder("gru-forecast")
    file = place / "seqspec.json"
    content = file.read_bytes()
    for at in range(0, len(content), 3):
        if content[at : at + 1].isspace():
            continue
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(SeqspecError) as caught:
            seqspec.Session(place)
        assert caught.value.code in ("SEQ507", "SEQ508"), content[at - 20 : at + 20]


def test_a_torch_folder(compiled: Get, tmp_path: Path) -> None:
    place = api.write_torch(compiled("gru-forecast").model, tmp_path / "out", verify=False)
    data = json.loads((place / "seqspec.json").read_text())
    for where in places(data):
        (place / "seqspec.json").write_text(json.dumps(less(data, where)))
        with pytest.raises(SeqspecError) as caught:
            seqspec.verify(place)
        assert caught.value.code in ("SEQ507", "SEQ508"), where
