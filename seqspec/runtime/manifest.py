"""Reads `seqspec.json`, and checks that a compiled folder is still what was written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqspec.backends.directory import MANIFEST, SCHEMA, digest, record
from seqspec.diagnostics import RuntimeFault
from seqspec.graph.signature import Signature
from seqspec.runtime.facts import Facts
from seqspec.runtime.manifest_schema import problem

_AGAIN = "compile the spec again"
_OPTIONS = ("target", "dtype", "logits", "quantize")


@dataclass(frozen=True)
class Manifest:
    """The description of a compiled folder. It was compiled with `options`; `graphs` maps roles to ONNX files.

    Roles are model, or encoder and decoder, or initial and model if a state starts from learned values.
    """

    folder: Path
    backend: str
    target: str
    dtype: str
    graphs: Mapping[str, Path]
    signature: Signature
    facts: Mapping[str, Facts]
    options: Mapping[str, Any]
    in_place: bool = False
    """Whether kernels can write every cache that grows in place."""
    tokenizer: Mapping[str, Any] | None = None
    """The file of a tokenizer, with the ids that end and start a text."""

    @property
    def only_last(self) -> bool:
        """Whether logits are those of the last real position."""
        return self.options.get("logits") == "last"

    @property
    def quantized(self) -> bool:
        """Whether weights are stored in fewer bits."""
        return "quantize" in self.options


def read(folder: Path) -> Manifest:
    """The manifest of a folder; a RuntimeFault if it or a file with a recorded hash is not as it was written."""
    data = _checked(folder)
    _check_files(folder, data["files"])
    return _manifest(folder, data)


def described(folder: Path) -> Manifest:
    """The manifest of a folder whose files nobody can have changed yet: they may be too large to hash in vain."""
    return _manifest(folder, _checked(folder))


def _checked(folder: Path) -> dict[str, Any]:
    """The manifest's content; a RuntimeFault if it is not what was written."""
    data = _load(folder)
    if data.get("seqspec") != SCHEMA:
        text = f"its manifest is version {data.get('seqspec')!r}; this release reads {SCHEMA}"
        raise RuntimeFault("SEQ508", text, _AGAIN, str(folder / MANIFEST))
    wrong = problem(data)
    if wrong is not None:
        raise damaged(folder / MANIFEST, wrong)
    if digest(data) != data["sha256"]:
        raise damaged(folder / MANIFEST, "it is not what was written (its own SHA-256 differs)")
    return data


def _load(folder: Path) -> dict[str, Any]:
    if folder.is_file():
        raise _no_folder(folder)
    file = folder / MANIFEST
    try:
        data = json.loads(file.read_bytes())
    except FileNotFoundError:
        what = f"it holds no {MANIFEST}" if folder.is_dir() else "there is no such folder"
        raise RuntimeFault("SEQ507", f"{folder} is no compiled model: {what}", file=str(folder)) from None
    except OSError as error:
        raise damaged(file, f"it cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise damaged(file, "it is not JSON") from None
    if not isinstance(data, dict):
        raise damaged(file, "it is no manifest of seqspec")
    return data


def _no_folder(file: Path) -> RuntimeFault:
    """The fault of a file given instead of the folder of a compiled model."""
    if file.suffix.lower() in (".yaml", ".yml"):
        text, hint = f"{file} is a spec", f"compile it first: seqspec compile {file} --to onnx -o out"
    elif (file.parent / MANIFEST).is_file():
        text, hint = f"{file} is one file of a compiled model", f"give its folder, {file.parent}"
    else:
        text, hint = f"{file} is a file", "give the folder that `seqspec compile` wrote"
    return RuntimeFault("SEQ516", text, hint)


def _manifest(folder: Path, data: Mapping[str, Any]) -> Manifest:
    graphs = {role: folder / name for role, name in data["graphs"].items()}
    facts = {name: Facts.from_json(fact) for name, fact in data["inputs"].items()}
    signature = Signature.from_json(data["signature"])
    options, in_place = {name: data[name] for name in _OPTIONS if name in data}, bool(data.get("in_place"))
    known = (data["backend"], data["target"], data["dtype"], graphs, signature, facts, options, in_place)
    return Manifest(folder, *known, data.get("tokenizer"))


def _check_files(folder: Path, files: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Compares sizes first, so that a truncated file is found before any is hashed. Files listed without may change."""
    recorded = {name: wanted for name, wanted in files.items() if wanted is not None}
    for name, wanted in recorded.items():
        file = folder / name
        if not file.is_file():
            raise damaged(file, "it is missing")
        if file.stat().st_size != wanted["size"]:
            raise damaged(file, f"it has {file.stat().st_size} bytes instead of {wanted['size']}")
    for name, wanted in recorded.items():
        if record(folder / name)["sha256"] != wanted["sha256"]:
            raise damaged(folder / name, "its content is not what was written (SHA-256 differs)")


def damaged(file: Path, what: str) -> RuntimeFault:
    """The fault of a file that has changed since it was written."""
    return RuntimeFault("SEQ507", f"{file.name} is damaged: {what}", _AGAIN, str(file))
