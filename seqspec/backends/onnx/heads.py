"""Lets attention read heads as projections lay them out, [B, T, H·d], and join its cache itself.

Attention and RotaryEmbedding take that layout as well as [B, H, T, d]. The nodes that split heads, move them and merge
them again, and those that append keys and values to a past, are left out where nothing else reads their values.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir


def flatten_heads(graph: ir.Graph) -> None:
    """Rewrites each attention, in branches too, whose heads are split before it and merged behind it."""
    for node in [n for n in graph.all_nodes() if n.op_type == "Attention" and not n.domain]:
        ways = [_way(value) for value in node.inputs[:3]]
        merged = _merged(node.outputs[0])
        q, k, v = ways
        if q and k and v and merged and not q.joined and bool(k.joined) == bool(v.joined):
            _flatten(node, (q, k, v), merged)
    graph.sort()


@dataclass(frozen=True)
class _Way:
    """How q, k or v comes to attention from `flat`: split into heads, perhaps rotated, perhaps joined to a past."""

    flat: ir.Value
    heads: int
    split: ir.Node
    rotated: ir.Node | None
    joined: ir.Node | None


def _way(value: ir.Value | None) -> _Way | None:
    """The nodes that lead to an input of attention; None if it has heads in another way."""
    rotated = joined = None
    node = _maker(value)
    if node and node.op_type == "Concat" and len(node.inputs) == 2 and node.attributes["axis"].as_int() == 2:
        joined, node = node, _maker(node.inputs[1])
    if node and node.op_type == "RotaryEmbedding":
        rotated, node = node, _maker(node.inputs[0])
    if not node or not _swaps_heads(node):
        return None
    split = _maker(node.inputs[0])
    if not split or split.op_type != "Reshape" or not split.inputs[0] or not split.inputs[1]:
        return None
    sizes = split.inputs[1].const_value
    if sizes is None or sizes.size != 4:
        return None
    return _Way(split.inputs[0], int(sizes.numpy()[2]), node, rotated, joined)


def _merged(value: ir.Value) -> ir.Value | None:
    """y[B, H, T, d] -> the value that has its heads in one axis, if y is read for that alone."""
    swapped = _reader(value)
    reshaped = _reader(swapped.outputs[0]) if swapped and _swaps_heads(swapped) else None
    return reshaped.outputs[0] if reshaped and reshaped.op_type == "Reshape" else None


def _flatten(attention: ir.Node, ways: tuple[_Way, _Way, _Way], merged: ir.Value) -> None:
    """Puts an attention over flat values in the place of this one and of the nodes around it."""
    q, k, v = ways
    joins = [way.joined for way in (k, v) if way.joined]
    inputs = [*map(_flat, ways), *attention.inputs[3:]]
    if joins:
        inputs += [None] * (4 - len(inputs)) + [join.inputs[0] for join in joins]
    heads = [ir.AttrInt64("q_num_heads", q.heads), ir.AttrInt64("kv_num_heads", k.heads)]
    olds = [merged, *(join.outputs[0] for join in joins)]
    made = _insert(attention, inputs, [*attention.attributes.values(), *heads], max(len(attention.outputs), len(olds)))
    pairs = [*zip(olds, made.outputs, strict=False), *zip(attention.outputs[3:], made.outputs[3:], strict=True)]
    for old, new in pairs:
        new.name, new.type, new.shape = old.name, old.type, old.shape
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    for old, _ in pairs:
        _remove_unread(_maker(old))


def _flat(way: _Way) -> ir.Value:
    """Its queries, keys or values as [B, T, H·d], rotated if they are."""
    if way.rotated is None:
        return way.flat
    old = way.rotated
    attributes = [*old.attributes.values(), ir.AttrInt64("num_heads", way.heads)]
    (value,) = _insert(old, [way.flat, *old.inputs[1:]], attributes, 1).outputs
    value.name, value.type, value.shape = f"{old.outputs[0].name}/flat", way.flat.type, way.flat.shape
    return value


def _insert(old: ir.Node, inputs: list[ir.Value | None], attributes: list[ir.Attr], outputs: int) -> ir.Node:
    """A node of the same op before `old`."""
    made = ir.Node("", old.op_type, inputs, attributes, num_outputs=outputs, name=old.name)
    assert old.graph is not None
    old.graph.insert_before(old, made)
    return made


def _remove_unread(node: ir.Node | None) -> None:
    """Removes a node that nothing reads, and those that only it read."""
    if node is None or node.graph is None or any(v.uses() or v.is_graph_output() for v in node.outputs):
        return
    makers = [_maker(value) for value in node.inputs]
    node.graph.remove(node, safe=True)
    for maker in makers:
        _remove_unread(maker)


def _maker(value: ir.Value | None) -> ir.Node | None:
    return value.producer() if value else None


def _reader(value: ir.Value) -> ir.Node | None:
    """The node that reads a value, if it is one and the value is no output."""
    readers = [use.node for use in value.uses()]
    return readers[0] if len(readers) == 1 and not value.is_graph_output() else None


def _swaps_heads(node: ir.Node) -> bool:
    """Whether it makes [B, T, H, d] of [B, H, T, d], or back."""
    return node.op_type == "Transpose" and list(node.attributes["perm"].as_ints()) == [0, 2, 1, 3]
