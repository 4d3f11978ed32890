"""What passes over a flat region share: other nodes, other names of values, types inferred again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from seqspec.graph.ir import Call, Graph, Node, Param, Region, Value

Renamed = Mapping[str, Value | None]


def nodes(region: Region) -> list[Node]:
    """The nodes of a flat region."""
    return [_node(item) for item in region.items]


def with_items(graph: Graph, items: Iterable[Node]) -> Graph:
    """The flat graph with other nodes between its inputs and outputs, which stay."""
    return replace(graph, root=replace(graph.root, items=tuple(items)))


def _node(item: Node | Call) -> Node:
    if isinstance(item, Call):
        raise TypeError(f"{item.scope} is a call: inline comes first")
    return item


def read(value: Value | None, renamed: Renamed) -> Value | None:
    """The replacement of `value`, or itself. Tied weights are never replaced."""
    return value if value is None or isinstance(value, Param) else renamed.get(value.name, value)


def with_inputs(node: Node, renamed: Renamed) -> Node:
    """`node` with its inputs replaced; the same node if none is."""
    if not any(v is not None and v.name in renamed for v in node.inputs):
        return node
    return replace(node, inputs=tuple(read(v, renamed) for v in node.inputs))


def outputs_of(region: Region, renamed: Renamed) -> tuple[Value, ...]:
    """The region's outputs after replacement, with their public names kept."""
    stand_ins = ((old, renamed.get(old.name, old)) for old in region.outputs)
    return tuple(replace(new, hint=old.hint or old.name) for old, new in stand_ins if new is not None)


def retyped(region: Region, inputs: tuple[Value, ...], items: Iterable[Node], renamed: Renamed) -> Region:
    """A region of `items` with all types inferred again; `renamed` maps names to replacements."""
    known: dict[str, Value | None] = {**renamed, **{v.name: v for v in inputs}}
    typed = []
    for node in items:
        arguments = tuple(read(v, known) for v in node.inputs)
        types = node.op.infer(*arguments)
        outputs = tuple(
            replace(v, shape=t.shape, dtype=t.dtype, optional=t.optional)
            for v, t in zip(node.outputs, types, strict=True)
        )
        known.update((v.name, v) for v in outputs)
        typed.append(replace(node, inputs=arguments, outputs=outputs))
    return Region(region.name, inputs, tuple(typed), outputs_of(region, known))
