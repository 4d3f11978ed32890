"""What import families share: renaming of weights, and common parts of a spec."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from seqspec.diagnostics import CompileError, quoted
from seqspec.importers.hf.config import Config
from seqspec.importers.weights import FLOATS, Tensor

_OLD_LEAVES = {"gamma": "weight", "beta": "bias"}  # TensorFlow's names for a norm's parameters, as in old BERT files


def renamed(
    tensors: Mapping[str, Tensor], prefix: str, modules: Mapping[str, str], left_out: Iterable[str] = ()
) -> dict[str, Tensor]:
    """The tensors under the language's names.

    `modules` maps module paths, `*` standing for a layer's number on both sides; `prefix` may precede any name.
    `left_out` are patterns of names that have no counterpart in the spec. Any other name is refused.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        path = name.removeprefix(prefix)
        if any(fnmatchcase(path, pattern) for pattern in left_out):
            continue
        module, _, leaf = path.rpartition(".")
        target = modules.get(re.sub(r"\.\d+(?=\.|$)", ".*", module))
        if target is None or tensor.dtype not in FLOATS:
            raise _no_place(name, tensor)
        for number in re.findall(r"\.(\d+)(?=\.|$)", module):
            target = target.replace("*", number, 1)
        full = f"{target}.{_OLD_LEAVES.get(leaf, leaf)}"
        if full in found:
            raise CompileError("SEQ412", f"the weights hold {quoted(full)} twice, once as {quoted(name)}")
        found[full] = tensor
    return found


def dropout(*, input: float = 0, residual: float = 0, attention: float = 0) -> dict[str, Any]:
    """A stack's `dropout`, or {} if all rates are 0."""
    rates = {"input": input, "residual": residual, "attention": attention}
    acting = {key: rate for key, rate in rates.items() if rate}
    if acting and input == residual and not attention:
        return {"dropout": input}
    return {"dropout": acting} if acting else {}


def language_model_head(config: Config, base: str, tied: bool, sentence_head: dict[str, Any] | None) -> dict[str, Any]:
    """`{head: …}` of a decoder: that of a sentence model, else of the language model; {} if the `base` was saved."""
    architecture = config.architecture()
    tied = config.flag("tie_word_embeddings", tied)
    if sentence_head:
        return {"head": sentence_head}
    if architecture == base:
        return {}
    if architecture not in (None, base.replace("Model", "LMHeadModel"), base.replace("Model", "ForCausalLM")):
        raise config.refuse(f"the head of {architecture} cannot be expressed")
    return {"head": {"kind": "lm", "tied": True} if tied else {"kind": "lm"}}


def _no_place(name: str, tensor: Tensor) -> CompileError:
    if tensor.dtype in FLOATS:
        return CompileError("SEQ412", f"the weights hold {quoted(name)}, which has no place in this family")
    return CompileError("SEQ412", f"the weight {quoted(name)} is {tensor.dtype}", f"read are {', '.join(FLOATS)}")
