"""Finds the tokenizer that a spec names, reads it without its library, and compares it with a model's vocabularies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqspec.components.base import Finding, Findings
from seqspec.components.tokenizer import Tokenizer
from seqspec.components.tokens import Tokens
from seqspec.document import Document, files
from seqspec.spec.model import Model

NAME = "tokenizer.json"
MAX_BYTES = 1 << 26
_SAVED = 'save it with the tokenizers library: `tokenizer.save("tokenizer.json")`'


@dataclass(frozen=True)
class TokenizerFile:
    """A tokenizer in a compiled folder: its file and the ids that end and start a text."""

    content: bytes
    eos_id: int | None
    start_id: int | None

    def to_json(self) -> dict[str, Any]:
        """The manifest's entry; its hash is among those of the files."""
        ids = {"eos_id": self.eos_id, "start_id": self.start_id}
        return {"file": NAME} | {name: one for name, one in ids.items() if one is not None}


def find(document: Document) -> str:
    """The real path of the file that a document names, relative to the spec that names it; raises `files.Refused`."""
    written = document.data["tokenizer"]
    path = ("tokenizer", "file") if isinstance(written, dict) else ("tokenizer",)
    name = written["file"] if isinstance(written, dict) else written
    assert isinstance(name, str)
    here = document.span(path)[0]
    file = here if os.path.isfile(here) else document.file  # a name from --set has no file of its own
    if not os.path.isfile(file):
        raise files.Refused("SEQ036", "`tokenizer` needs a spec that is a file", "save this spec to a file")
    root, folder = (os.path.realpath(os.path.dirname(one) or ".") for one in (document.file, file))
    return files.find(name, folder, root, key="tokenizer", example=NAME)


def check(model: Model, path: str) -> Findings:
    """Findings about a model's tokenizer, whose file has the given real path."""
    tokenizer = _of(model)
    known = vocabulary(files.read(path, tokenizer.file, limit=MAX_BYTES))
    if not known:
        text = f"`{tokenizer.file}` is no tokenizer: it holds no vocabulary"
        yield Finding("SEQ240", ("tokenizer", "file"), text, _SAVED)
        return
    count = max(known.values()) + 1
    tables = dict(_vocabularies(model))
    if not tables:
        yield Finding("SEQ232", ("tokenizer",), "nothing here reads or writes ids", "delete `tokenizer`")
    for at, size in tables.items():
        if size < count:
            text = f"vocab_size is {size}, and the ids of `{tokenizer.file}` go up to {count - 1}"
            yield Finding("SEQ241", at, text, f"write `vocab_size: {count}`, or more")
    for field in ("eos", "start"):
        token = getattr(tokenizer, field)
        if token is not None and token not in known:
            yield Finding("SEQ241", ("tokenizer", field), f"`{token}` is no token of `{tokenizer.file}`")
    if tokenizer.start is not None and len(model.stacks) < 2:
        text = "a text goes on from its prompt here: there is no decoder behind an encoder"
        yield Finding("SEQ232", ("tokenizer", "start"), text, "delete it")


def vocabulary(content: bytes) -> dict[str, int]:
    """{token: id} of a `tokenizer.json`, with added tokens; empty if it is not one."""
    try:
        data = json.loads(content)
        tokens = data["model"]["vocab"]
        # a Unigram model has a list of tokens with their scores
        found = dict(tokens) if isinstance(tokens, dict) else {token: n for n, (token, _) in enumerate(tokens)}
        found |= {token["content"]: token["id"] for token in data.get("added_tokens") or ()}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if all(type(one) is int and one >= 0 for one in found.values()) else {}


def kept(model: Model) -> TokenizerFile | None:
    """The tokenizer of a checked model, for its folder."""
    if model.tokenizer is None:
        return None
    tokenizer = _of(model)
    content = Path(model.tokenizer_path).read_bytes()
    ids = vocabulary(content)
    return TokenizerFile(content, *(ids[one] if one else None for one in (tokenizer.eos, tokenizer.start)))


def contents(tokenizer: TokenizerFile | None) -> dict[str, bytes]:
    """{name: content} of the tokenizer's file in a folder."""
    return {} if tokenizer is None else {NAME: tokenizer.content}


def beside(model: Model) -> Model:
    """The model with the tokenizer's copy in its folder, for the spec of that folder."""
    if model.tokenizer is None:
        return model
    return model.model_copy(update={"tokenizer": _of(model).model_copy(update={"file": NAME})})


def _of(model: Model) -> Tokenizer:
    assert model.tokenizer is not None
    return Tokenizer(file=model.tokenizer) if isinstance(model.tokenizer, str) else model.tokenizer


def _vocabularies(model: Model) -> Iterator[tuple[tuple[str, ...], int]]:
    """(path, size) of every vocabulary size in a model."""
    for name, stack in model.stacks.items():
        if isinstance(stack.input, Tokens) and stack.input.vocab_size is not None:
            yield (name, "input", "vocab_size"), stack.input.vocab_size
    for name, head in model.heads.items():
        size = getattr(head, "vocab_size", None)
        if size is not None:
            yield (("outputs", name) if name else ("head",)) + ("vocab_size",), size
