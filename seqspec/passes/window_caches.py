"""Lets layers whose attention sees only a window keep only that of the past, where no kernel keeps a cache in place.

Attention in plain ONNX copies its past on every call. Of a window layer, copies and memory then stop growing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from seqspec.graph.ir import Graph, Node, Param, Value, join
from seqspec.ops.attention import Attention
from seqspec.ops.cache import Append
from seqspec.ops.masks import looks_back
from seqspec.ops.visible import Visible
from seqspec.ops.window import AppendWindow, OfKept
from seqspec.passes.rewrite import nodes, retyped


@dataclass(frozen=True)
class Found:
    """Keys and values that only `readers` see, none of them further back than `left` of the tokens in `real`."""

    keys: Node
    values: Node
    readers: tuple[Node, ...]
    real: Value
    left: int


def window_caches(graph: Graph) -> Graph:
    """The flat graph with `AppendWindow` for keys and values that are seen through windows alone."""
    found = list(_found(graph))
    if not found:
        return graph
    gone = {id(node) for one in found for node in (one.keys, one.values)}
    first = {id(one.readers[0]): one for one in found}
    of = {id(reader): one for one in found for reader in one.readers}
    items: list[Node] = []
    for node in nodes(graph.root):
        if id(node) in first:
            items.append(_appended(first[id(node)]))
        if id(node) in of:
            items += _reading(node, of[id(node)])
        elif id(node) not in gone:
            items.append(node)
    return replace(graph, root=retyped(graph.root, graph.root.inputs, items, {}))


def _found(graph: Graph) -> Iterator[Found]:
    items, public = nodes(graph.root), {v.name for v in graph.root.outputs}
    makers = {v.name: node for node in items for v in node.outputs}
    readers: defaultdict[str, list[Node]] = defaultdict(list)
    for node in items:
        for value in node.inputs:
            if value is not None and not isinstance(value, Param):
                readers[value.name].append(node)
    done: set[str] = set()
    for node in items:
        if not isinstance(node.op, Attention):
            continue
        keys, values = (makers.get(v.name) if v is not None else None for v in node.inputs[1:3])
        if keys is None or values is None or keys.outputs[0].name in done:
            continue
        done.add(keys.outputs[0].name)
        names = [n.outputs[0].name for n in (keys, values)]
        appended = all(isinstance(n.op, Append) for n in (keys, values)) and keys.name == values.name
        reading = readers[names[0]]
        if not appended or reading != readers[names[1]] or not public.isdisjoint(names):
            continue
        lefts = [_left(reader, keys, values) for reader in reading]
        bounds = [left for left in lefts if left is not None]
        real, *others = (_real(reader, makers) for reader in reading)
        if real is not None and len(bounds) == len(lefts) and all(other == real for other in others):
            yield Found(keys, values, tuple(reading), real, max(bounds))


def _left(reader: Node, keys: Node, values: Node) -> int | None:
    """How far back an attention sees these keys; None if that has no bound, or if its weights show all keys."""
    if not isinstance(reader.op, Attention) or reader.op.weights:
        return None
    if reader.inputs[1:3] != (keys.outputs[0], values.outputs[0]):
        return None
    return looks_back(reader.op.mask)


def _real(reader: Node, makers: dict[str, Node]) -> Value | None:
    """Which of all keys are real, where an attention says so."""
    mask = reader.inputs[3] if len(reader.inputs) > 3 else None
    if mask is None or (isinstance(reader.op, Attention) and reader.op.band is not None):
        return mask
    maker = makers.get(mask.name)
    return maker.inputs[2] if maker is not None and isinstance(maker.op, Visible) else None


def _appended(found: Found) -> Node:
    keys, values = found.keys, found.values
    assert isinstance(keys.op, Append)
    assert isinstance(values.op, Append)
    op = AppendWindow((keys.op.name, values.op.name), found.left)
    inputs = (keys.inputs[0], values.inputs[0], found.real)
    return Node(op, inputs, (keys.outputs[0], values.outputs[0], _kept(found)), keys.name, keys.origin)


def _kept(found: Found) -> Value:
    """Which of the kept keys are real."""
    return Value(join(found.keys.outputs[0].name, "real"), found.real.shape, "bool")


def _reading(node: Node, found: Found) -> Iterator[Node]:
    """An attention of the kept keys, after the nodes that cut what it reads of all keys."""
    assert isinstance(node.op, Attention)
    q, k, v, mask, *bias = node.inputs
    kept = _kept(found)
    cut: dict[str, Value] = {found.real.name: kept}
    whole = [x for x in (None if node.op.band is not None else mask, *bias) if x is not None]
    for x in whole:
        cut[x.name] = Value(join(node.outputs[0].name, "kept", x.name), x.shape, x.dtype)
        yield Node(OfKept(), (x, kept), (cut[x.name],), "", node.origin)
    inputs = (q, k, v, *(None if x is None else cut[x.name] for x in (mask, *bias)))
    yield replace(node, inputs=inputs)
