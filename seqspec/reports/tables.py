"""Learned tables of positions, which have an end: a model cannot run a longer call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from seqspec.diagnostics import RuntimeFault
from seqspec.graph.dims import ENCODER_TIME, PAST, Size, evaluate, names
from seqspec.graph.ir import Call, Region
from seqspec.ops.positions import LearnedPositions, Positions
from seqspec.ops.time_projection import TimeProjection


class Table(NamedTuple):
    """The time axis that it is read over, whether after a past, and its number of positions."""

    time: Size
    looks_back: bool
    limit: int

    def length(self, sizes: Mapping[str, int]) -> int:
        """The number of positions that a call of these sizes reads."""
        return evaluate(self.time, sizes) + self.looks_back * sizes[PAST]


def tables(region: Region) -> Iterator[Table]:
    """Every table in a region and those below it, once for each time it is read."""
    behind = set()
    for item in region.items:
        if isinstance(item, Call):
            yield from tables(item.region)
        elif isinstance(item.op, Positions) and item.op.looks_back:
            behind.add(item.outputs[0])
        elif isinstance(item.op, LearnedPositions | TimeProjection):
            positions = item.inputs[isinstance(item.op, TimeProjection)]
            assert positions is not None
            yield Table(positions.shape[1], positions in behind, item.op.max_length)


def refuse_past_tables(root: Region, sizes: Mapping[str, int]) -> None:
    """SEQ506 if a call of these sizes reads past the end of a table."""
    for table in set(tables(root)):
        length = table.length(sizes)
        if length > table.limit:
            behind = table.looks_back and sizes[PAST] > 0
            more = f", of which {sizes[PAST]} are the past" if behind else ""
            text = f"{length} positions are asked for{more}; the learned position table ends at {table.limit}"
            option = "--source-time" if ENCODER_TIME in names(table.time) else "--time"
            raise RuntimeFault("SEQ506", text, f"lower {option}{' or --past' * behind}, or raise `max_length`")
