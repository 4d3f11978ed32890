"""The time of each op, from the files that onnxruntime's profiler writes."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class OpTime:
    """All nodes of one op in a call, as medians over calls. An If or a loop excludes the nodes that run inside it."""

    op: str
    seconds: float
    nodes: int


@dataclass
class Span:
    """The start and end of a run or a node in microseconds, and how much of that its inner nodes take."""

    op: str
    start: float
    end: float
    inside: float = 0.0


def op_times(files: Mapping[Path, Sequence[str]]) -> dict[str, tuple[OpTime, ...]]:
    """{file: a name for each of its runs, empty if it is not counted} -> {name: its ops, the slowest first}."""
    found: dict[str, dict[str, tuple[float, int]]] = defaultdict(dict)
    for file, names in files.items():
        calls: dict[str, list[dict[str, list[float]]]] = defaultdict(list)
        for name, nodes in zip(names, runs(json.loads(file.read_bytes())), strict=True):
            calls[name].append(_by_op(nodes))
        calls.pop("", None)
        for name, each in calls.items():
            for op in {op for call in each for op in call}:
                seconds, count = found[name].get(op, (0.0, 0))
                seconds += statistics.median(sum(call.get(op, ())) for call in each)
                found[name][op] = (seconds, count + round(statistics.median(len(call.get(op, ())) for call in each)))
    return {
        name: tuple(sorted((OpTime(op, *of) for op, of in ops.items()), key=lambda op: (-op.seconds, op.op)))
        for name, ops in found.items()
    }


def runs(events: Sequence[Mapping[str, Any]]) -> Iterator[list[Span]]:
    """The nodes of each run of a session, in order; `inside` is filled in."""
    spans = [_span("", e) for e in events if e["cat"] == "Session" and e["name"] == "model_run"]
    nodes = [
        _span(e["args"]["op_name"], e) for e in events if e["cat"] == "Node" and e["name"].endswith("_kernel_time")
    ]
    nodes.sort(key=lambda node: (node.start, -node.end))
    for run in sorted(spans, key=lambda run: run.start):
        found = [node for node in nodes if run.start <= node.start < run.end]
        around: list[Span] = []
        for node in found:
            while around and node.start >= around[-1].end:
                around.pop()
            if around:
                around[-1].inside += node.end - node.start
            around.append(node)
        yield found


def _span(op: str, event: Mapping[str, Any]) -> Span:
    return Span(op, float(event["ts"]), float(event["ts"]) + float(event["dur"]))


def _by_op(nodes: Sequence[Span]) -> dict[str, list[float]]:
    """Seconds of each node by its op."""
    spent = defaultdict(list)
    for node in nodes:
        spent[node.op].append((node.end - node.start - node.inside) / 1e6)
    return spent
