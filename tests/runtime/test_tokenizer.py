"""A spec's tokenizer: found beside it, copied with its hash, text in and text out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from small_targets import fault
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

import seqspec
from seqspec.cli.main import run
from seqspec.runtime.text import Tokenizer
from seqspec.spec.tokenizer import vocabulary

Out = pytest.CaptureFixture[str]
SPEC = """
seqspec: 1
name: tiny
tokenizer: {file: words/tiny.json, eos: </s>}
decoder:
  input: {kind: tokens, vocab_size: 300}
  d_model: 16
  position: rope
  layers: [{block: [{kind: attention, heads: 2}, {kind: ffn, d_ff: 20}]}]
head: {kind: lm}
"""
TRANSLATOR = """
seqspec: 1
name: translator
tokenizer: {file: words/tiny.json, eos: </s>, start: <s>}
encoder:
  input: {kind: tokens, vocab_size: 300, d_model: 8}
  layers: [{kind: gru, hidden_size: 6}]
decoder:
  input: {kind: tokens, share: encoder.input}
  layers: [{kind: gru, hidden_size: 6, initial_state: {kind: bridge, from: encoder, map: copy}}]
head: {kind: lm}
"""
TEXTS = ["the cat sat", "Über die Brücke 🙂", "a"]


def byte_pairs() -> tokenizers.Tokenizer:
    """Trained on a line: bytes, 300 tokens at most, with an end and a start."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=alphabet, special_tokens=["</s>", "<s>"], show_progress=False
    )
    made.train_from_iterator(["the cat sat on the mat, the hat on the cat"] * 9, trainer)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec in a folder that is not the current one, with its tokenizer below it."""
    (tmp_path / "specs/words").mkdir(parents=True)
    byte_pairs().save(str(tmp_path / "specs/words/tiny.json"))
    (tmp_path / "specs/tiny.yaml").write_text(SPEC)
    (tmp_path / "specs/translator.yaml").write_text(TRANSLATOR)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("write", [seqspec.to_onnx, seqspec.api.write_torch])
def test_it_is_copied_with_its_hash(folder: Path, write: Callable[..., Path]) -> None:
    for spec in ("specs/tiny.yaml", seqspec.load("specs/tiny.yaml")):
        out = write(spec, folder / "out", seed=1)
        assert (out / "tokenizer.json").read_bytes() == (folder / "specs/words/tiny.json").read_bytes()
        manifest = json.loads((out / "seqspec.json").read_text())
        assert manifest["tokenizer"] == {"file": "tokenizer.json", "eos_id": 0}
        assert "tokenizer.json" in manifest["files"]
        # the folder's own spec names its own copy
        assert seqspec.load(out / "spec.yaml").tokenizer_path == str((out / "tokenizer.json").resolve())
        seqspec.verify(out)
    (out / "tokenizer.json").write_text("{}")
    with fault("SEQ507", "tokenizer.json"):
        seqspec.verify(out)


def test_it_changes_no_number(folder: Path) -> None:
    plain = SPEC.replace("tokenizer: {file: words/tiny.json, eos: </s>}\n", "")
    assert seqspec.to_source("specs/tiny.yaml") == seqspec.to_source(plain)


def test_a_base_names_what_lies_beside_it(folder: Path) -> None:
    (folder / "specs/words/base.yaml").write_text(SPEC.replace("words/tiny.json", "tiny.json"))
    (folder / "specs/outer.yaml").write_text("extends: words/base.yaml\nname: outer\n")
    assert seqspec.load("specs/outer.yaml").tokenizer_path.endswith("specs/words/tiny.json")
    assert not seqspec.check("specs/tiny.yaml", ["tokenizer=words/tiny.json"]).has_errors


def test_what_is_wrong_with_it_has_a_place(folder: Path) -> None:
    def found(text: str) -> list[tuple[str, int, int]]:
        (folder / "specs/x.yaml").write_text(text)
        return [(d.code, d.line, d.column) for d in seqspec.check("specs/x.yaml")]

    count = byte_pairs().get_vocab_size()
    assert found(SPEC) == found(SPEC.replace("vocab_size: 300", f"vocab_size: {count}")) == []
    assert found(SPEC.replace("tiny.json", "none.json")) == [("SEQ030", 4, 12)]
    assert found(SPEC.replace("words/tiny.json", "/etc/passwd")) == [("SEQ032", 4, 12)]
    assert found(SPEC.replace("vocab_size: 300", f"vocab_size: {count - 1}")) == [("SEQ241", 6, 37)]
    assert found(SPEC.replace("eos: </s>", "eos: <end>")) == [("SEQ241", 4, 41)]
    assert found(SPEC.replace("eos: </s>", "start: <s>")) == [("SEQ232", 4, 36)]
    (folder / "specs/words/none.json").write_text('{"model": {"vocab": {"a": "b"}}}')
    assert found(SPEC.replace("tiny.json", "none.json")) == [("SEQ240", 4, 19)]
    # a spec that is no file has nothing beside it
    assert [d.code for d in seqspec.check(SPEC)] == ["SEQ036"]


@pytest.mark.parametrize("kind", ["bytes", "words", "pieces", "unigram"])
def test_a_vocabulary_is_read_as_the_library_reads_it(kind: str) -> None:
    words = {"[UNK]": 0, "cat": 1, "sat": 2, "##s": 3}
    made = {
        "bytes": byte_pairs,
        "words": lambda: tokenizers.Tokenizer(models.WordLevel(words, "[UNK]")),
        "pieces": lambda: tokenizers.Tokenizer(models.WordPiece(words, unk_token="[UNK]")),
        "unigram": lambda: tokenizers.Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], 0, False)),
    }[kind]()
    made.add_special_tokens(["<end>"])
    assert vocabulary(made.to_str().encode()) == made.get_vocab()


def test_text_in_and_text_out(folder: Path, capfd: Out) -> None:
    """Every text alone, streamed, and all as a batch, against the library and the session by hand."""
    session = seqspec.Session(seqspec.to_onnx("specs/tiny.yaml", folder / "out", seed=3))
    library = byte_pairs()
    want = []
    for text in TEXTS:
        ids = session.generate(library.encode(text).ids, max_new_tokens=9, eos_id=0)
        want.append(library.decode(ids.tolist()))
        assert run(["generate", "out", "--text", text, "--max-new-tokens", "9"]) == 0
        assert capfd.readouterr().out == f"{want[-1]}\n"
    every = [part for text in TEXTS for part in ("--text", text)]
    assert run(["generate", "out", *every, "--max-new-tokens", "9"]) == 0
    assert capfd.readouterr().out == "".join(f"{text}\n" for text in want)
    assert run(["generate", "out", *every, "--max-new-tokens", "5", "--num-beams", "3"]) == 0
    rows = [library.encode(text).ids for text in TEXTS]
    beams = session.generate(rows, max_new_tokens=5, num_beams=3, eos_id=session.named_ids["eos_id"])
    assert capfd.readouterr().out == "".join(f"{library.decode(row.tolist())}\n" for row in beams)


def test_an_end_and_a_start_are_the_specs(folder: Path, capfd: Out) -> None:
    session = seqspec.Session(seqspec.to_onnx("specs/translator.yaml", folder / "out", seed=2))
    assert session.named_ids == {"eos_id": 0, "decoder_start_id": 1}
    ids = session.tokenizer.encode("the cat")
    made = session.generate([ids], max_new_tokens=4, decoder_start_id=1, eos_id=0)
    assert run(["generate", "out", "--text", "the cat", "--max-new-tokens", "4"]) == 0
    assert capfd.readouterr().out == f"{session.tokenizer.decode(made[0])}\n"
    # what is given wins
    for start in (1, 30):
        made = session.generate([ids], max_new_tokens=4, decoder_start_id=start, eos_id=[7])
        options = ["--decoder-start-id", str(start), "--eos-id", "7", "--max-new-tokens", "4"]
        assert run(["generate", "out", "--ids", ",".join(map(str, ids)), *options]) == 0
        assert capfd.readouterr().out == ",".join(map(str, made[0])) + "\n"


def test_a_stream_shows_whole_characters(folder: Path) -> None:
    session = seqspec.Session(seqspec.to_onnx("specs/tiny.yaml", folder / "out", verify=False))
    for text in (*TEXTS, "🙂🙃", "\udcff".encode("utf-8", "surrogateescape").decode("latin-1")):
        ids = session.tokenizer.encode(text)
        pieces = list(session.tokenizer.stream(ids))
        assert "".join(pieces) == session.tokenizer.decode(ids) == text
        assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)
    half = session.tokenizer.encode("🙂")[:-1]
    assert "".join(session.tokenizer.stream(half)) == session.tokenizer.decode(half)


def test_without_a_tokenizer_there_are_ids(folder: Path, capfd: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "plain.yaml").write_text(SPEC.replace("tokenizer: {file: words/tiny.json, eos: </s>}\n", ""))
    seqspec.to_onnx("plain.yaml", folder / "plain", verify=False)
    assert run(["generate", "plain", "--text", "a", "--max-new-tokens", "2"]) == 1
    assert "SEQ518" in capfd.readouterr().err
    assert run(["generate", "plain", "--text", "a", "--ids", "1", "--max-new-tokens", "2"]) == 2
    assert run(["generate", "plain", "--max-new-tokens", "2"]) == 2
    seqspec.to_onnx("specs/tiny.yaml", folder / "out", verify=False)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    capfd.readouterr()
    assert run(["generate", "out", "--ids", "5,6", "--max-new-tokens", "2"]) == 0
    assert run(["generate", "out", "--text", "a", "--max-new-tokens", "2"]) == 1
    assert "seqspec-compiler[text]" in capfd.readouterr().err


def test_a_file_that_the_library_does_not_read(folder: Path) -> None:
    (folder / "specs/words/tiny.json").write_text('{"model": {"vocab": {"</s>": 0}}}')
    session = seqspec.Session(seqspec.to_onnx("specs/tiny.yaml", folder / "out", verify=False))
    with fault("SEQ518", "tokenizer.json"):
        _ = session.tokenizer
    assert isinstance(session.generate([3], max_new_tokens=2), np.ndarray)


def test_the_class_is_the_librarys(folder: Path) -> None:
    session = seqspec.Session(seqspec.to_onnx("specs/tiny.yaml", folder / "out", verify=False))
    assert isinstance(session.tokenizer, Tokenizer)
    assert session.tokenizer.encode("the cat") == byte_pairs().encode("the cat").ids
