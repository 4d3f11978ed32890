"""The report of a model: in all, and part by part, layers that repeat in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seqspec.graph.dims import BATCH, ENCODER_TIME, PAST, TIME, names
from seqspec.graph.ir import Call, Graph, Node, Region, Value, join
from seqspec.ops.pool import Pool
from seqspec.reports.count import Cost, Count
from seqspec.reports.tables import refuse_past_tables, tables

VERSION = 1
DEFAULT_TIME = 128


@dataclass(frozen=True)
class Part:
    """One line: a part under its name, or `count` equal layers that follow each other, each with these numbers."""

    name: str
    what: str
    count: int
    parameters: int
    flops: int
    once: bool  # runs on the first call only


@dataclass(frozen=True)
class Summary:
    """`flops` are those of the call described by `sizes`; `flops_first` those of a first call, encoder included.

    `state_bytes` are carried to the next call; `held_bytes` of them never change after the first.
    """

    name: str
    dtype: str
    sizes: Mapping[str, int]
    parameters: int
    weight_bytes: int
    flops: int
    flops_first: int
    state_bytes: int
    held_bytes: int
    parts: tuple[Part, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data = {k: getattr(self, k) for k in ("name", "dtype", "parameters", "weight_bytes", "flops", "flops_first")}
        data |= {"state_bytes": self.state_bytes, "held_bytes": self.held_bytes, "sizes": dict(self.sizes)}
        return {"version": VERSION, **data, "parts": [vars(part) for part in self.parts]}


def summarise(
    graph: Graph,
    name: str = "",
    *,
    batch: int = 1,
    time: int | None = None,
    past: int = 0,
    source_time: int | None = None,
    dtype: str = "float32",
) -> Summary:
    """The report of a graph at given sizes.

    `time` is 128 by default, or what a shorter table of positions has room for; `source_time` is the encoder's, and
    `time` by default.
    """
    if time is None:
        room = [table.limit - past * table.looks_back for table in tables(graph.root)]
        time = max(1, min([DEFAULT_TIME, *room]))
    sizes = {BATCH: batch, TIME: time, PAST: past}
    if any(ENCODER_TIME in names(size) for value in graph.root.inputs for size in value.shape):
        sizes[ENCODER_TIME] = time if source_time is None else source_time
    root = graph.root
    refuse_past_tables(root, sizes)
    count = Count(sizes, dtype)
    late = tuple(v.name not in graph.once for v in root.inputs)
    cost, _ = count.flops(root, late)
    parameters, weight_bytes = count.params(root)
    state_bytes, held_bytes = count.states(root)
    return Summary(
        name=name,
        dtype=dtype,
        sizes=sizes,
        parameters=parameters,
        weight_bytes=weight_bytes,
        flops=cost.every if past else cost.total,
        flops_first=cost.total,
        state_bytes=state_bytes,
        held_bytes=held_bytes,
        parts=tuple(_collapsed(_parts(count, root, dict(zip(root.inputs, late, strict=True)), ""))),
    )


def _parts(count: Count, region: Region, env: dict[Value, bool], scope: str) -> Iterator[tuple[Part, int]]:
    """Every part that owns or computes something, with the identity of its region; stacks are opened."""
    for item in region.items:
        name = join(scope, item.scope)
        if isinstance(item, Call) and not scope:
            late = (v is not None and env.get(v, False) for v in item.inputs)
            inner = dict(zip(item.region.inputs, late, strict=True))
            count.flops_of(item, env)
            yield from _parts(count, item.region, inner, name)
            continue
        cost = count.flops_of(item, env)
        parameters, _ = count.params(item)
        pools = isinstance(item, Node) and isinstance(item.op, Pool)
        if parameters or cost.total or pools:
            yield _part(name or "head", item, parameters, cost), id(item.region) if isinstance(item, Call) else 0


def _part(name: str, item: Node | Call, parameters: int, cost: Cost) -> Part:
    what = item.region.name if isinstance(item, Call) else type(item.op).__name__
    if isinstance(item, Node) and isinstance(item.op, Pool):
        what += f" ({item.op.kind})"
    return Part(name, what, 1, parameters, cost.total, once=bool(cost.once and not cost.every))


def _collapsed(parts: Iterator[tuple[Part, int]]) -> Iterator[Part]:
    """Calls of one region in a row as one line: `decoder.layers.0-11`."""
    run: list[Part] = []
    before = 0
    for part, region in parts:
        if run and (region != before or not region or _numbers(part) != _numbers(run[0])):
            yield _joined(run)
            run = []
        run.append(part)
        before = region
    if run:
        yield _joined(run)


def _numbers(part: Part) -> tuple[object, ...]:
    return (part.parameters, part.flops, part.once)


def _joined(run: list[Part]) -> Part:
    first, last = run[0], run[-1]
    name = first.name if len(run) == 1 else f"{first.name}-{last.name.rsplit('.', 1)[-1]}"
    return Part(name, first.what, len(run), first.parameters, first.flops, first.once)
