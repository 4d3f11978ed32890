"""The graph as a networkx graph, for analysis: what depends on what, which path is longest, what changed.

The compiler does not import this: importing networkx alone takes longer than a whole check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx  # type: ignore[import-untyped]

from seqspec.graph.dims import evaluate
from seqspec.graph.ir import Call, Graph, Node, Param, Region, Value, join
from seqspec.graph.signature import output_name
from seqspec.graph.text import op_text, region_names, typed


def to_networkx(graph: Graph) -> nx.MultiDiGraph:
    """Ops, inputs, tied parameters and outputs as nodes; values as edges.

    Nodes are named by path: `decoder.layers.0.attention/Attention`. They have `kind` (op, input, parameter, output),
    `op`, `path`, `shapes` of their outputs, and `origin`, the YAML path. Edges have `value` (name and type as text),
    `shape` and `argument` (the index of the input). Calls are expanded, so that every layer is there.
    """
    return _Drawing(graph).drawn


def dead(graph: Graph) -> list[str]:
    """The ops that no output and no state depends on."""
    drawn = to_networkx(graph)
    alive = {n for n, data in drawn.nodes(data=True) if data["kind"] == "output" or data.get("states")}
    for node in list(alive):
        alive |= nx.ancestors(drawn, node)
    return [n for n, data in drawn.nodes(data=True) if data["kind"] == "op" and n not in alive]


def reads(graph: Graph, output: str) -> list[str]:
    """The names of the inputs that the output depends on."""
    drawn = to_networkx(graph)
    above = nx.ancestors(drawn, f"output {output}")
    return [data["path"] for n, data in drawn.nodes(data=True) if data["kind"] == "input" and n in above]


def critical_path(graph: Graph, sizes: Mapping[str, int]) -> tuple[list[str], int]:
    """The chain of ops with the most FLOPs, and its FLOPs: what no amount of parallelism can shorten."""
    drawn = to_networkx(graph)
    costs = _costs(drawn, sizes)
    best: dict[str, tuple[int, str | None]] = {}
    for node in nx.topological_sort(drawn):
        before = max(((best[p][0], p) for p in drawn.predecessors(node)), default=(0, None))
        best[node] = (before[0] + costs[node], before[1])
    end: str | None = max(best, key=lambda n: best[n][0], default=None)
    total, chain = best[end][0] if end else 0, []
    while end is not None:
        chain.append(end)
        end = best[end][1]
    return [n for n in reversed(chain) if drawn.nodes[n]["kind"] == "op"], total


@dataclass(frozen=True)
class Difference:
    """How two graphs differ, by path. `changed` holds (path, before, after)."""

    removed: tuple[str, ...]
    added: tuple[str, ...]
    changed: tuple[tuple[str, str, str], ...]

    def __bool__(self) -> bool:
        return bool(self.removed or self.added or self.changed)


def difference(before: Graph, after: Graph) -> Difference:
    """How `after` differs from `before`: ops added, removed, or changed in attributes or shapes."""
    old, new = (_described(to_networkx(g)) for g in (before, after))
    both = [n for n in old if n in new]
    return Difference(
        tuple(n for n in old if n not in new),
        tuple(n for n in new if n not in old),
        tuple((n, old[n], new[n]) for n in both if old[n] != new[n]),
    )


class _Drawing:
    """The networkx graph while it is drawn."""

    def __init__(self, graph: Graph) -> None:
        self.drawn = nx.MultiDiGraph()
        self.names = region_names(graph.regions())
        self.tables = {p.name: p for p in graph.root.params}
        root = graph.root
        made = [self._add(f"input {v.name}", "input", v.name, [v]) for v in root.inputs]
        known = {v.name: (node, v) for node, v in zip(made, root.inputs, strict=True)}
        for value, source in zip(root.outputs, self._region(root, "", known), strict=True):
            name = output_name(value)
            self._edge(source, self._add(f"output {name}", "output", name, [value]), 0)

    def _region(self, region: Region, scope: str, known: dict[str, Any]) -> Iterator[Any]:
        """Draws the items of a region; yields the sources of its outputs."""
        for item in region.items:
            sources = [self._source(v, scope, known) for v in item.inputs]
            if isinstance(item, Call):
                inner = dict(zip((v.name for v in item.region.inputs), sources, strict=True))
                outputs = list(self._region(item.region, join(scope, item.scope), inner))
            else:
                node = self._op(item, scope, sources)
                outputs = [(node, v) for v in item.outputs]
            known.update(zip((v.name for v in item.outputs), outputs, strict=True))
        return iter([self._source(v, scope, known) for v in region.outputs])

    def _source(self, value: Value | None, scope: str, known: Mapping[str, Any]) -> Any:
        if not isinstance(value, Param):
            return None if value is None else known[value.name]
        path = join(scope, value.name)
        name = f"parameter {path}"
        return (name if name in self.drawn else self._add(name, "parameter", path, [value])), value

    def _op(self, node: Node, scope: str, sources: Sequence[Any]) -> str:
        path = join(scope, node.name)
        stem = f"{path}/{type(node.op).__name__}" if path else type(node.op).__name__
        name, count = stem, 1
        while name in self.drawn:
            count += 1
            name = f"{stem}.{count}"
        states = [s.name for s in node.op.states(*node.inputs)]
        facts = {"op": op_text(node.op, self.names), "origin": node.origin, "states": states, "node": node}
        self._add(name, "op", path, node.outputs, **facts)
        for index, source in enumerate(sources):
            if source is not None:
                self._edge(source, name, index)
        return name

    def _add(self, name: str, kind: str, path: str, values: Sequence[Value], **facts: Any) -> str:
        self.drawn.add_node(name, kind=kind, path=path, shapes=[v.shape for v in values], **facts)
        return name

    def _edge(self, source: Any, target: str, argument: int) -> None:
        node, value = source
        self.drawn.add_edge(node, target, value=typed(value), shape=value.shape, argument=argument)


def _costs(drawn: nx.MultiDiGraph, sizes: Mapping[str, int]) -> dict[str, int]:
    costs = {}
    for name, data in drawn.nodes(data=True):
        node = data.get("node")
        inputs = [] if node is None else [v and replace(v, shape=_numbers(v, sizes)) for v in node.inputs]
        costs[name] = 0 if node is None else int(node.op.flops(*inputs))
    return costs


def _numbers(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(size, sizes) for size in value.shape)


def _described(drawn: nx.MultiDiGraph) -> dict[str, str]:
    facts = drawn.nodes(data=True)
    return {n: f"{d.get('op', d['kind'])} -> {', '.join(map(str, d['shapes']))}" for n, d in facts}
