"""The report of a model: its totals and its parts, where repeated layers share one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from seqspec.graph.dims import BATCH, ENCODER_TIME, LABELS, PAST, TIME, names
from seqspec.graph.ir import Graph
from seqspec.reports.count import Count
from seqspec.reports.flow import Reach
from seqspec.reports.growth import Grown
from seqspec.reports.live import Live
from seqspec.reports.parts import Growth, Part, parts, places
from seqspec.reports.tables import refuse_past_tables, tables

VERSION = 1
DEFAULT_TIME = 128


@dataclass(frozen=True)
class Summary:
    """`flops` are those of the call described by `sizes`; `flops_first` those of a first call, encoder included.

    `state_bytes` are carried to the next call; `held_bytes` of them never change after the first. `working_bytes` are
    the most that a forward pass has alive at once, besides weights and state. `train_flops` are a forward and a
    backward pass, the loss included; `kept_bytes` what the backward pass reads again.
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
    working_bytes: int
    train_flops: int
    kept_bytes: int
    growth: Growth
    parts: tuple[Part, ...]

    @property
    def train_flops_checkpointed(self) -> int:
        """Training FLOPs including those that checkpointed layers compute again."""
        return self.train_flops + sum(part.count * part.flops for part in self.parts if part.checkpointed)

    @property
    def kept_bytes_checkpointed(self) -> int:
        """Kept bytes without those inside checkpointed layers, except in the one whose gradients are being computed."""
        layers = [part for part in self.parts if part.checkpointed]
        inside = sum(part.count * part.inside_bytes for part in layers)
        return self.kept_bytes - inside + max((part.inside_bytes for part in layers), default=0)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data: dict[str, Any] = {"version": VERSION} | {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("train_flops_checkpointed", "kept_bytes_checkpointed"):
            data[name] = getattr(self, name)
        data |= {"sizes": dict(self.sizes), "growth": self.growth._asdict()}
        data["parts"] = [vars(part) | {"growth": part.growth._asdict()} for part in self.parts]
        return data


def summarise(
    graph: Graph,
    name: str = "",
    *,
    batch: int = 1,
    time: int | None = None,
    past: int = 0,
    source_time: int | None = None,
    dtype: str = "float32",
    growth: Grown | None = None,
) -> Summary:
    """The report of a graph at given sizes, with `growth` if it is given.

    `time` is 128 by default, or less if a table of positions is shorter; `source_time` is the encoder's, and
    `time` by default.
    """
    if time is None:
        room = [table.limit - past * table.looks_back for table in tables(graph.root)]
        time = max(1, min([DEFAULT_TIME, *room]))
    sizes = {BATCH: batch, TIME: time, PAST: past}
    if any(ENCODER_TIME in names(size) for value in graph.root.inputs for size in value.shape):
        sizes[ENCODER_TIME] = time if source_time is None else source_time
    if any(LABELS in names(size) for value in graph.trainable.root.inputs for size in value.shape):
        sizes[LABELS] = time
    refuse_past_tables(graph.root, sizes)
    return _counted(graph, name, Count(sizes, dtype), growth)


def _counted(graph: Graph, name: str, count: Count, growth: Grown | None) -> Summary:
    root, training = graph.root, graph.trainable.root
    cost = count.cost(root, Reach.of(graph, root))
    reach = Reach.of(graph, training)
    trained = count.cost(training, reach)
    found = list(places(count, training, reach, len(root.items)))
    parameters, weight_bytes = count.params(root)
    state_bytes, held_bytes = count.states(root)
    return Summary(
        name=name,
        dtype=count.dtype,
        sizes=count.sizes,
        parameters=parameters,
        weight_bytes=weight_bytes,
        flops=cost.every if count.sizes[PAST] else cost.total,
        flops_first=cost.total,
        state_bytes=state_bytes,
        held_bytes=held_bytes,
        working_bytes=Live(count).peak(root),
        train_flops=trained.total + trained.backward,
        kept_bytes=count.kept(training, reach.takes),
        growth=growth.whole if growth else Growth(),
        parts=tuple(parts(count, found, growth.places if growth else [Growth()] * len(found))),
    )
