"""What other programs need to know to drive a decoder, and why they cannot drive every model.

They feed ids, a mask, and the keys and values of every layer, and read logits. They know of no other inputs or states.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seqspec.diagnostics import CompileError, arguments
from seqspec.graph.dims import PAST, TIME, Shape, dim
from seqspec.graph.ir import Graph
from seqspec.graph.signature import Carried, Signature, signature
from seqspec.passes.rewrite import nodes

_FED = ("input_ids", "attention_mask", "position_ids")
_CACHE = re.compile(r"past_key_values\.(\d+)\.(key|value)")


@dataclass(frozen=True)
class Decoder:
    """`inputs` are those of ids, mask and positions that the file takes; `caches` has the shape of a layer's keys, and
    of its values, by the number of the layer."""

    inputs: tuple[str, ...]
    vocab_size: int
    caches: Mapping[int, tuple[Shape, Shape]]
    pad_id: int | None
    max_length: int | None

    @property
    def layers(self) -> int:
        """Up to the last one that has a cache."""
        return 1 + max(self.caches)


def decoder(flat: Graph, facts: Mapping[str, Mapping[str, Any]], program: str, eos_id: int | None) -> Decoder:
    """What the one file of `flat` is as a decoder, or why `program` cannot drive it; `facts` say more of its inputs."""
    described = signature(flat)
    for path, text in _faults(flat, described):
        raise cannot_drive(program, text, path)
    (logits,) = (port.shape for port in described.outputs if port.name == "logits")
    assert isinstance(logits[2], int)
    if eos_id is not None and eos_id >= logits[2]:
        raise arguments.refused("eos_id", f"an id below {logits[2]}, the size of the vocabulary", eos_id)
    shapes = {s.past: s.shape for s in described.states}
    numbers = sorted({_layer(s) for s in described.states})
    caches = {n: (shapes[f"past_key_values.{n}.key"], shapes[f"past_key_values.{n}.value"]) for n in numbers}
    said = facts.get("input_ids", {})
    inputs = tuple(port.name for port in described.inputs)
    return Decoder(inputs, logits[2], caches, said.get("pad_id"), said.get("max_length"))


def cannot_drive(program: str, text: str, path: str) -> CompileError:
    """The refusal, about the part of the spec at `path`."""
    hint = "compile without it: `seqspec run` runs every model, and `generate` every model of a next id"
    return CompileError("SEQ416", f"{program} cannot drive this model: {text}", hint, path=path)


def origin(flat: Graph, carried: str) -> str:
    """Where in the spec a state is made, by its path in the graph."""
    return next(n.origin for n in nodes(flat.root) if carried in {state.name for state in n.states})


def _faults(flat: Graph, described: Signature) -> Iterator[tuple[str, str]]:
    """(the YAML path, what such programs do not know)"""
    if flat.once:
        yield "encoder", "it has an encoder besides the decoder"
    names = [port.name for port in described.inputs]
    if "input_ids" not in names:
        yield _reader(flat, names[0]), f"it reads `{names[0]}` and no ids"
    for name in names:
        if name not in _FED:
            yield _reader(flat, name), f"it takes `{name}` besides ids, mask and positions"
    logits = next((port.shape for port in described.outputs if port.name == "logits"), ())
    if len(logits) != 3 or logits[1] not in (1, dim(TIME)):
        yield "head", "it gives no `logits` of the next id"
    for state in described.states:
        if not _CACHE.fullmatch(state.past) or dim(PAST) not in state.shape:
            yield origin(flat, state.path), f"it carries `{state.past}`, which is not the keys or values of a layer"
    if not described.states:
        yield "encoder", "it carries nothing from one id to the next"


def _reader(flat: Graph, name: str) -> str:
    """Where in the spec an input is read."""
    return next((n.origin for n in nodes(flat.root) if any(v is not None and v.name == name for v in n.inputs)), "")


def _layer(carried: Carried) -> int:
    found = _CACHE.fullmatch(carried.past)
    assert found is not None
    return int(found[1])
