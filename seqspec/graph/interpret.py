"""Runs a region by the NumPy reference of every op: an implementation that shares no code with the backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqspec.graph.ir import Call, Node, Param, Region, Value, join

Array = Any


def interpret(
    region: Region,
    np: Any,
    weights: Mapping[str, Array],
    inputs: Sequence[Array | None],
    past: Mapping[str, Array] | None = None,
    scope: str = "",
) -> tuple[tuple[Array | None, ...], dict[str, Array | None]]:
    """The outputs of a region, and its present states by full path. `weights` and `past` are keyed by full path."""
    env: dict[Value, Array | None] = dict(zip(region.inputs, inputs, strict=True))
    present: dict[str, Array | None] = {}

    def read(value: Value | None) -> Array | None:
        if value is None:
            return None
        return weights[join(scope, value.name)] if isinstance(value, Param) else env[value]

    for item in region.items:
        arguments = [read(v) for v in item.inputs]
        if isinstance(item, Call):
            outputs, inner = interpret(item.region, np, weights, arguments, past, join(scope, item.scope))
            present |= inner
        else:
            outputs, inner = _apply(item, np, weights, arguments, past or {}, scope)
            present |= inner
        env.update(zip(item.outputs, outputs, strict=True))
    return tuple(read(v) for v in region.outputs), present


def _apply(
    node: Node,
    np: Any,
    weights: Mapping[str, Array],
    arguments: Sequence[Array | None],
    past: Mapping[str, Array],
    scope: str,
) -> tuple[tuple[Array | None, ...], dict[str, Array | None]]:
    prefix = join(scope, node.name)
    own = {p.name: weights[join(prefix, p.name)] for p in node.op.params()}
    states = node.op.states(*node.inputs)
    pasts = [past.get(join(prefix, s.name)) for s in states]
    outputs = node.op.reference(np, own, *arguments, *pasts)
    return outputs, {join(prefix, s.name): outputs[s.output] for s in states}
