"""The examples in the table of codes: each wrong one is found under its code, each right one is not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import seqspec
from seqspec.diagnostics import CODES
from seqspec.document import load_text

# Examples of these need a file, a size or a part of the language that this version does not have.
WITHOUT = {
    "SEQ002": "the good example is a beginning",
    "SEQ005": "bytes, not text: tests/cold/test_document.py",
    "SEQ006": "a real NUL byte: tests/cold/test_document.py",
    "SEQ011": "the good example is a beginning",
    "SEQ032": "needs a folder: tests/cold/test_document.py",
    "SEQ033": "needs a folder: tests/cold/test_document.py",
    "SEQ040": "a command line: tests/cold/test_document.py",
    "SEQ041": "a command line: tests/cold/test_document.py",
    "SEQ042": "a command line: tests/cold/test_document.py",
    "SEQ217": "`initial_state: given`",
    "SEQ228": "masks of other inputs",
    "SEQ230": "convolutions",
    "SEQ233": "`share: parameters`",
    "SEQ235": "a placement alone takes the default norm",
    "SEQ236": "experts",
    "SEQ237": "`given` masks",
    "SEQ239": "no part needs it yet: sinusoidal tables take odd widths",
}
GRU = {"kind": "gru", "hidden_size": 16}
DECODER = {"input": {"kind": "tokens", "vocab_size": 100}, "d_model": 16, "layers": [GRU]}
BLOCK = [{"block": [{"kind": "attention", "heads": 8, "head_dim": 4}, {"kind": "ffn", "d_ff": 8}]}]
ENCODER = {"input": {"kind": "tokens", "vocab_size": 100, "d_model": 16}, "layers": [{**GRU, "hidden_size": 64}]}
READING = {"block": [{"kind": "cross_attention", "from": "encoder", "heads": 4}]}


def surrounded(code: str, text: str) -> dict[str, Any]:
    """A whole spec around an example: what the example is told by its keys, the rest is sound."""
    part: dict[str, Any] = load_text(text).data
    root: dict[str, Any] = {"seqspec": 1, "name": "x"}
    decoder = dict(DECODER)
    if "seqspec" in part or code in ("SEQ107", "SEQ111"):
        spec = {**root, "decoder": decoder, **part}
        return part if code == "SEQ112" else spec
    if code == "SEQ213":
        return {**root, "encoder": ENCODER, "decoder": {**decoder, "layers": [part]}}
    if "kind" in part:
        return _around_kind(code, part, root, decoder)
    if "attend" in part or "initial_state" in part:
        bidirectional = {"layers": [{"kind": "gru", "hidden_size": 16, "num_layers": 2}]}
        encoder = {**ENCODER, **bidirectional} if code == "SEQ210" else {**ENCODER, "layers": BLOCK}
        layer = {"kind": "gru", "hidden_size": 16, **part}
        return {**root, "encoder": encoder, "decoder": {**decoder, "layers": [layer]}}
    if "encoder" in part or "decoder" in part:
        return _filled(root, part)
    if "tokenizer" in part:
        read = {"input": part.get("input", {"kind": "tokens", "vocab_size": 32000})}
        return {**root, "tokenizer": part["tokenizer"], "decoder": {**decoder, **read, "layers": BLOCK}}
    if "block" in part:
        return {**root, "decoder": {**decoder, "layers": [part]}}
    if "mask" in part:
        block = [{"kind": "attention", "heads": 8, "head_dim": 4, **part}]
        return {**root, "decoder": {**decoder, "causal": code == "SEQ207", "layers": [{"block": block}]}}
    if "pattern" in part:
        blocks = {"local": BLOCK[0]["block"], "global": BLOCK[0]["block"]}
        return {**root, "decoder": {**decoder, "blocks": blocks, "layers": [part]}}
    if "layers" in part and code == "SEQ219":
        blocks = {"local": BLOCK[0]["block"], "global": BLOCK[0]["block"]}
        return {**root, "decoder": {**decoder, "blocks": blocks, **part}}
    if "head" in part:
        return {**root, "decoder": {**decoder, **{k: v for k, v in part.items() if k != "head"}}, "head": part["head"]}
    if "vocab_size" in part:
        return {**root, "decoder": {**decoder, "input": {"kind": "tokens", **part}}}
    if code == "SEQ231":
        return {**root, "encoder": {"d_model": 16, "layers": [GRU], **part}}
    if "share" in str(part.get("input", "")):
        return {**root, "encoder": ENCODER, "decoder": {**decoder, **part, "layers": [READING]}}
    extra = {"layers": BLOCK} if "layers" not in part else {}
    return {**root, "decoder": {**decoder, **extra, **part}}


def _around_kind(code: str, part: dict[str, Any], root: dict[str, Any], decoder: dict[str, Any]) -> dict[str, Any]:
    if part["kind"] in ("lstm", "gru", "rnn"):
        stack = {**ENCODER, "layers": [part]}
        if "attend" in part:
            return {**root, "encoder": ENCODER, "decoder": {**decoder, "layers": [part]}}
        return {**root, "encoder": stack}
    if part["kind"] == "cross_attention":
        return {**root, "encoder": ENCODER, "decoder": {**decoder, "layers": [{"block": [part]}]}}
    position = {"position": "rope"} if code == "SEQ203" else {}
    return {**root, "decoder": {**decoder, **position, "layers": [{"block": [part]}]}}


def _filled(root: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    stacks = {
        name: {**(ENCODER if name == "encoder" else DECODER), **value} if isinstance(value, dict) else value
        for name, value in part.items()
        if name in ("encoder", "decoder")
    }
    if "decoder" in stacks and "cross_attention" in str(stacks["decoder"]):
        stacks = {"encoder": ENCODER, **stacks}
    for name, stack in stacks.items():
        if name == "decoder" and "d_model" not in part[name] and "input" in part[name]:
            del stack["d_model"]
    return {**root, **stacks, **{k: v for k, v in part.items() if k not in stacks}}


CASES = [code for code, entry in CODES.items() if code < "SEQ4" and entry.bad and code not in WITHOUT]


@pytest.mark.parametrize("code", [code for code in CASES if code < "SEQ1"])
def test_examples_about_yaml(code: str) -> None:
    for example, wrong in ((CODES[code].bad, True), (CODES[code].good, False)):
        try:
            load_text(example)
            found = []
        except seqspec.SpecError as error:
            found = [d.code for d in error.diagnostics]
        assert (code in found) == wrong, found


@pytest.mark.parametrize("code", [code for code in CASES if code > "SEQ1"])
def test_examples_about_specs(code: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 31999}}}')
    (tmp_path / "vocab.txt").write_text("a")

    def check(example: str) -> seqspec.Report:
        spec = surrounded(code, example)
        if "tokenizer" not in spec:
            return seqspec.check(spec)
        (tmp_path / "spec.yaml").write_text(json.dumps(spec))
        return seqspec.check(tmp_path / "spec.yaml")

    bad = [d.code for d in check(CODES[code].bad)]
    assert code in bad
    good = [(d.code, d.path, d.message) for d in check(CODES[code].good)]
    assert good == []


def test_codes_that_are_used_have_examples() -> None:
    """What a person meets in a spec is shown wrong and right."""
    root = Path(seqspec.__file__).parent
    files = [*root.glob("components/*.py"), *root.glob("spec/*.py")]
    used = {code for file in files for code in re.findall(r'"(SEQ[12]\d\d)"', file.read_text())}
    lacking = {code for code in used if not (CODES[code].bad and CODES[code].good)}
    assert lacking <= {"SEQ114", "SEQ116"}
    assert not used & set(WITHOUT)
