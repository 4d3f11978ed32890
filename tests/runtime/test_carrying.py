"""Generation without copies: one buffer where nothing is padded, values handed on where something is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqspec
from seqspec.runtime import carrying
from seqspec.runtime.carrying import Carrying

SPEC: dict[str, Any] = {
    "seqspec": 1,
    "name": "tiny",
    "decoder": {
        "input": {"kind": "tokens", "vocab_size": 31},
        "d_model": 32,
        "position": {"kind": "rope"},
        "layers": [{"repeat": 2, "block": [{"kind": "attention", "heads": 2}, {"kind": "ffn", "d_ff": 24}]}],
    },
    "head": {"kind": "lm"},
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> seqspec.Session:
    return seqspec.Session(seqspec.to_onnx(SPEC, tmp_path_factory.mktemp("kernel") / "out"))


def copied(session: seqspec.Session, ids: Any, count: int) -> np.ndarray:
    """Through `run`, which copies every cache at every step."""
    state, given, made = None, {"input_ids": np.array(ids)}, []
    for _ in range(count):
        result = session.run(given, state)
        state = result.state
        made.append(np.argmax(result["logits"][:, -1], -1))
        given = {"input_ids": made[-1][:, None]}
    return np.stack(made, 1)


@pytest.mark.parametrize("ids", [[[3]], [[4, 5, 6]], [[4, 5, 6], [7, 8, 9]]])
def test_a_cache_stays_in_its_buffer(session: seqspec.Session, ids: Any) -> None:
    assert session.in_place
    assert session.generate(ids, max_new_tokens=9).tolist() == copied(session, ids, 9).tolist()
    stepping = Carrying(session, 6)
    logits, first = stepping.step({"input_ids": np.array(ids)}, None)
    places = {name: value.data_ptr() for name, value in first.values.items()}
    _, second = stepping.step({"input_ids": logits[:, -1].argmax(-1)[:, None]}, first)
    assert {name: value.data_ptr() for name, value in second.values.items()} == places
    assert {tuple(value.shape()) for value in second.values.values()} == {(len(ids), 2, 6, 16)}


def test_a_full_buffer_becomes_a_longer_one(session: seqspec.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    want = session.generate([[4, 5, 6]], max_new_tokens=40)
    beams = session.generate([[4, 5, 6], [7, 8, 9]], max_new_tokens=40, num_beams=3)
    monkeypatch.setattr(carrying, "_AHEAD", 2)
    assert session.generate([[4, 5, 6]], max_new_tokens=40).tolist() == want.tolist()
    assert session.generate([[4, 5, 6], [7, 8, 9]], max_new_tokens=40, num_beams=3).tolist() == beams.tolist()


def test_rows_that_are_padded_have_no_buffer(session: seqspec.Session) -> None:
    rows = [[3, 4, 5, 6], [7], [8, 9]]
    _, held = Carrying(session, 9).step(
        {"input_ids": np.array([[3, 4], [0, 7]]), "attention_mask": np.array([[1, 1], [0, 1]])}, None
    )
    assert not held.in_place
    alone = [session.generate(row, max_new_tokens=6).tolist() for row in rows]
    assert session.generate(rows, max_new_tokens=6).tolist() == alone


def test_a_file_without_the_kernel_has_no_buffer(tmp_path: Path, session: seqspec.Session) -> None:
    plain = seqspec.Session(seqspec.to_onnx(SPEC, tmp_path / "out", target="portable"))
    assert not plain.in_place
    ids = [[4, 5, 6], [7, 8, 9]]
    assert plain.generate(ids, max_new_tokens=9).tolist() == session.generate(ids, max_new_tokens=9).tolist()


def test_two_generations_do_not_meet(session: seqspec.Session) -> None:
    alone = [session.generate([n], max_new_tokens=5).tolist() for n in (3, 4)]
    together = zip(session.stream([3], max_new_tokens=5), session.stream([4], max_new_tokens=5), strict=True)
    made = np.array([(int(a[0]), int(b[0])) for a, b in together]).T
    assert made.tolist() == alone
