"""Writes the graph as JSON for other programs: the signature, and every distinct region once, children first.

    {"version": 1, "signature": {…}, "regions": [{"name", "inputs", "items", "outputs"}, …]}      the last is the root

An item is {"op", "attributes"} or {"region"}, with {"scope", "inputs", "outputs", "origin"}. An input is a value's
name, `%name` for a tied weight, or null.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from seqspec.graph.ir import Call, Graph, Node, Param, Region, State, Value
from seqspec.graph.signature import signature
from seqspec.graph.text import region_names

VERSION = 1


def to_json(graph: Graph) -> str:
    """The JSON document, ending in a line break."""
    regions = graph.regions()
    names = region_names(regions)
    data = {
        "version": VERSION,
        "signature": signature(graph).to_json(),
        "regions": [_region(region, names) for region in regions],
    }
    return json.dumps(data, indent=1) + "\n"


def _region(region: Region, names: dict[int, str]) -> dict[str, Any]:
    return {
        "name": names[id(region)],
        "inputs": [_value(v) for v in region.inputs],
        "items": [_item(item, names) for item in region.items],
        "outputs": [v.name for v in region.outputs],
    }


def _item(item: Node | Call, names: dict[int, str]) -> dict[str, Any]:
    data: dict[str, Any] = {"scope": item.scope} if item.scope else {}
    if isinstance(item, Call):
        data["region"] = names[id(item.region)]
    else:
        data["op"] = type(item.op).__name__
        data["attributes"] = {f.name: _attribute(getattr(item.op, f.name), names) for f in fields(item.op)}
        if params := item.op.params():
            data["params"] = [{"name": p.name, "shape": list(map(str, p.shape))} for p in params]
        if states := item.op.states(*item.inputs):
            data["states"] = [_state(s) for s in states]
    data["inputs"] = [_argument(v) for v in item.inputs]
    data["outputs"] = [_value(v) for v in item.outputs]
    return data | ({"origin": item.origin} if item.origin else {})


def _attribute(value: Any, names: dict[int, str]) -> Any:
    if isinstance(value, Region):
        return f"@{names[id(value)]}"
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _argument(value: Value | None) -> str | None:
    if value is None:
        return None
    return f"%{value.name}" if isinstance(value, Param) else value.name


def _value(value: Value) -> dict[str, Any]:
    data: dict[str, Any] = {"name": value.name, "dtype": value.dtype, "shape": list(map(str, value.shape))}
    return data | ({"optional": True} if value.optional else {})


def _state(state: State) -> dict[str, Any]:
    shape = list(map(str, state.shape))
    data = {"name": state.name, "dtype": state.dtype, "shape": shape, "output": state.output}
    return data | ({"held": True} if state.held else {})
