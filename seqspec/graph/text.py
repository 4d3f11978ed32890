"""Prints the graph: every distinct region once, children first. Snapshots and pass fixtures hold this text.

    region Attention
      input  x: float[batch_size, sequence_length, 64]
      v1: float[batch_size, sequence_length, 64] = q_proj: Linear(64, 64, bias=False) x
      v2: float[...] = cache: Append('key') v1
        state  key: float[batch_size, 4, past_sequence_length, 16] -> v2
      v3: float[...] = attention: @Block x, -
      return v3

`?` is optional, `-` an absent input, `%name` a tied weight, `@name` a region, `!name` an input read on the first call
only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any

from seqspec.graph.dims import show
from seqspec.graph.ir import Call, Graph, Node, Param, Region, Value
from seqspec.graph.signature import output_name

if TYPE_CHECKING:
    from seqspec.ops.base import Op

Names = Mapping[int, str]


def text(graph: Graph) -> str:
    """The whole graph as text. Equal graphs print the same."""
    regions = graph.regions()
    names = region_names(regions)
    blocks = ["\n".join([*_region(r, names, graph), _return(r, graph)]) for r in regions]
    return "\n\n".join(blocks) + "\n"


def region_names(regions: tuple[Region, ...]) -> dict[int, str]:
    """A unique name for each region, keyed by its id: its own name, numbered where several share it."""
    seen: Counter[str] = Counter()
    names = {}
    for region in regions:
        seen[region.name] += 1
        count = seen[region.name]
        names[id(region)] = region.name if count == 1 else f"{region.name}.{count}"
    return names


def _region(region: Region, names: Names, graph: Graph) -> Iterator[str]:
    once = graph.once if region is graph.root else frozenset()
    yield f"region {names[id(region)]}"
    for value in region.inputs:
        yield f"  input  {'!' if value.name in once else ''}{typed(value)}"
    for item in region.items:
        outputs = ", ".join(map(typed, item.outputs))
        scope = f"{item.scope}: " if item.scope else ""
        yield f"  {outputs} = {scope}{_what(item, names)} {', '.join(map(_argument, item.inputs))}".rstrip()
        if isinstance(item, Node):
            yield from _states(item)


def _return(region: Region, graph: Graph) -> str:
    outputs = list(map(_argument, region.outputs))
    if region is graph.root:
        outputs = [f"{output_name(v)} = {o}" for v, o in zip(region.outputs, outputs, strict=True)]
    return f"  return {', '.join(outputs)}".rstrip()


def typed(value: Value) -> str:
    """A value with its type: `x: float[batch_size, 8]?`."""
    return f"{value.name}: {value.dtype}{show(value.shape)}{'?' if value.optional else ''}"


def _what(item: Node | Call, names: Names) -> str:
    return f"@{names[id(item.region)]}" if isinstance(item, Call) else op_text(item.op, names)


def op_text(op: Op, names: Names) -> str:
    """`Linear(8, 16, bias=False)`: required fields in order, and the others where they differ from their default."""
    parts = []
    for field in fields(op):
        value = getattr(op, field.name)
        if _is_required(field):
            parts.append(_literal(value, names))
        elif value != field.default:
            parts.append(f"{field.name}={_literal(value, names)}")
    return f"{type(op).__name__}({', '.join(parts)})"


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _literal(value: Any, names: Names) -> str:
    return f"@{names[id(value)]}" if isinstance(value, Region) else repr(value)


def _states(node: Node) -> Iterator[str]:
    for state in node.op.states(*node.inputs):
        held = " held" if state.held else ""
        yield f"    state  {state.name}: {state.dtype}{show(state.shape)} -> {node.outputs[state.output].name}{held}"


def _argument(value: Value | None) -> str:
    if value is None:
        return "-"
    return f"%{value.name}" if isinstance(value, Param) else value.name
