"""What a caller must know of an input besides its shape: the number of ids, the padding id, the longest length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from seqspec.graph.ir import Graph, Node, Value
from seqspec.ops.embedding import Embedding, Lookup
from seqspec.ops.padding import Padding
from seqspec.ops.positions import LearnedPositions
from seqspec.ops.rope import RopeTables
from seqspec.ops.rope_scaling import ByLength
from seqspec.ops.time_projection import TimeProjection
from seqspec.passes.inline import inline


@dataclass(frozen=True)
class Facts:
    """Facts about one input. A field that is None means that nothing is known or limited.

    `ids`: how many there are, from 0. `pad_id` is padding where no mask is given, except at the first position of all
    with `first_is_real`. `max_length`: how many real tokens a learned position table has room for. `same_in_steps`: up
    to how many tokens running in steps gives what running at once does. `mask`: the input that says what is padding.
    `documents`: the input that says which document a token is of; positions start anew in each, so that `max_length`
    is that of one document.
    """

    ids: int | None = None
    pad_id: int | None = None
    first_is_real: bool = False
    max_length: int | None = None
    same_in_steps: int | None = None
    mask: str | None = None
    documents: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data, without unknown fields."""
        return {key: value for key, value in asdict(self).items() if value is not None and value is not False}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Facts:
        return cls(**data)


def facts(graph: Graph) -> dict[str, Facts]:
    """The facts that the ops reading an input imply, by the input's name."""
    flat = inline(graph).root
    found = {value.name: Facts() for value in flat.inputs}
    same = {value: value.name for value in flat.inputs}  # values that are an input, or follow from it by position
    frames = dict.fromkeys(flat.inputs, 1)  # positions of the input in one position of such a value
    given: dict[Value | None, str] = {}  # of documents, the input that says them
    for node in flat.items:
        assert isinstance(node, Node)
        read = node.inputs[isinstance(node.op, TimeProjection)] if node.inputs else None
        if read not in same:
            continue
        kind, second = type(node.op).__name__, node.inputs[1] if len(node.inputs) > 1 else None
        if kind == "DocumentIds" and second is not None:
            given[node.outputs[0]] = second.name
        if kind == "DocumentPlaces":
            found[same[read]] = replace(found[same[read]], documents=given[second])
        if kind in _BECOMES:
            same[node.outputs[0]] = same[read]
            frames[node.outputs[0]] = frames[read] * getattr(node.op, "stride", 1)
        else:
            found[same[read]] = replace(found[same[read]], **_said(node, frames[read]))
    return {name: fact for name, fact in found.items() if fact != Facts()}


# by name, since few models have convolutions or documents
_BECOMES = frozenset({"OrZeros", "Positions", "ChannelsLast", "RealFirst", "ZeroPadding", "Conv1d", "Unary"})
_BECOMES |= {"DocumentPlaces", "QueryAndKey", "Squeeze"}


def _said(node: Node, frames: int) -> dict[str, Any]:
    """Facts about the input of a node's first argument, which is `frames` times as long as that argument."""
    other = node.inputs[1] if len(node.inputs) > 1 else None
    match node.op:
        case Embedding(count=count):
            return {"ids": count}
        case Lookup() if other is not None:
            return {"ids": other.shape[0]}
        case Padding(pad_id=pad_id, keep_first=keep_first):
            real = keep_first and pad_id is not None
            return {"pad_id": pad_id, "first_is_real": real, "mask": other.name if other is not None else None}
        case LearnedPositions(max_length=max_length) | TimeProjection(max_length=max_length):
            return {"max_length": max_length * frames}
        case RopeTables(scaling=ByLength(original_max_length=length)):
            return {"same_in_steps": length}
    return {}
