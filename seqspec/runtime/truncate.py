"""Truncates a model that is too large to run: each distinct layer once, with its true widths and weights."""

from __future__ import annotations

from collections.abc import Iterator

from seqspec.build import build
from seqspec.components.blocks import Pattern
from seqspec.components.layers import Entry
from seqspec.components.stack import Stack
from seqspec.graph.ir import Graph
from seqspec.spec.model import Model


def truncated(model: Model) -> tuple[Graph, dict[str, str]] | None:
    """The graph, and {its parameter: that of the whole model}; None if layers cannot be left out."""
    model = model.resolved()
    stacks, layers = {}, {}
    for name, stack in model.stacks.items():
        kept = list(_kept(stack))
        stacks[name] = stack.model_copy(update={"layers": [entry for entry, _ in kept]})
        layers[name] = [number for _, numbers in kept for number in numbers]
    short = model.model_copy(update=stacks)
    if list(short.check()):  # as with a bridge that pairs the layers of two stacks
        return None
    graph = build(short)
    return graph, {p.name: _whole(p.name, layers) for p in graph.root.params}


def _kept(stack: Stack) -> Iterator[tuple[Entry, list[int]]]:
    """Entries without repeats, and the flat indices of their layers in the whole stack."""
    start = 0
    for entry in stack.layers:
        if isinstance(entry, Pattern):
            distinct = list(dict.fromkeys(entry.pattern))
            yield (
                entry.model_copy(update={"repeat": 1, "pattern": distinct}),
                [start + entry.pattern.index(block) for block in distinct],
            )
            start += len(entry.pattern) * entry.repeat
        else:
            yield entry.model_copy(update={"repeat": 1}), [start]
            start += entry.repeat


def _whole(name: str, layers: dict[str, list[int]]) -> str:
    stack, _, rest = name.partition(".layers.")
    if not rest or stack not in layers:
        return name
    number, _, leaf = rest.partition(".")
    return f"{stack}.layers.{layers[stack][int(number)]}.{leaf}"
