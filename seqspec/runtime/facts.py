"""What a caller must know of an input beyond its shape: which ids there are, what is padding, how long it may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from seqspec.graph.ir import Graph, Node, Value
from seqspec.ops.embedding import Embedding, Lookup
from seqspec.ops.padding import Padding
from seqspec.ops.positions import LearnedPositions, Positions
from seqspec.passes.inline import inline


@dataclass(frozen=True)
class Facts:
    """Of one input. Every field that is None says that nothing is known or limited.

    `ids`: how many there are, from 0. `pad_id` is padding where no mask is given, except at the first position of all
    with `first_is_real`. `max_length`: how many real tokens a learned position table has room for. `mask`: the input
    that says what is padding.
    """

    ids: int | None = None
    pad_id: int | None = None
    first_is_real: bool = False
    max_length: int | None = None
    mask: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data, without what is not known."""
        return {key: value for key, value in asdict(self).items() if value is not None and value is not False}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Facts:
        return cls(**data)


def facts(graph: Graph) -> dict[str, Facts]:
    """What the ops that read an input say of it, by the input's name."""
    flat = inline(graph).root
    found = {value.name: Facts() for value in flat.inputs}
    measured: dict[Value, str] = {}  # positions -> the input they count
    for node in flat.items:
        assert isinstance(node, Node)
        for name, changes in _said(node, found, measured):
            found[name] = replace(found[name], **changes)
    return {name: fact for name, fact in found.items() if fact != Facts()}


def _said(node: Node, known: Mapping[str, Facts], measured: dict[Value, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What one node says of inputs: name and fields."""
    read = node.inputs[0] if node.inputs else None
    if read is None:
        return
    match node.op:
        case Embedding(count=count) if read.name in known:
            yield read.name, {"ids": count}
        case Lookup() if read.name in known and (table := node.inputs[1]) is not None:
            yield read.name, {"ids": table.shape[0]}
        case Padding(pad_id=pad_id, keep_first=keep_first):
            mask = node.inputs[1]
            yield read.name, {
                "pad_id": pad_id,
                "first_is_real": keep_first and pad_id is not None,
                "mask": mask.name if mask is not None else None,
            }
        case Positions():
            measured[node.outputs[0]] = read.name
        case LearnedPositions(max_length=max_length) if read in measured:
            yield measured[read], {"max_length": max_length}
