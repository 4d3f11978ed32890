"""What a model costs, exactly and from the graph alone: `seqspec.report(spec)`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from seqspec.build import build
from seqspec.checking import load
from seqspec.diagnostics import arguments
from seqspec.reports.count import DTYPES
from seqspec.reports.growth import growth
from seqspec.reports.parts import Part
from seqspec.reports.summary import Summary, summarise
from seqspec.spec.model import Model

__all__ = ["Part", "Summary", "report", "summarise"]


def report(
    spec: Model | str | os.PathLike[str] | Mapping[str, Any],
    *,
    batch: int = 1,
    time: int | None = None,
    past: int = 0,
    source_time: int | None = None,
    dtype: str = "float32",
) -> Summary:
    """Parameters, FLOPs and bytes of a spec for one call; `source_time` is the length the encoder reads.

    `time` is 128 by default, or as much as a learned table of positions has room for.
    """
    arguments.whole(batch, "batch", least=1)
    arguments.whole(past, "past")
    for name, value in (("time", time), ("source_time", source_time)):
        if value is not None:
            arguments.whole(value, name, least=1)
    arguments.word(dtype, "dtype", DTYPES)
    model = load(spec)
    graph, grows = build(model), growth(model)
    return summarise(
        graph, model.name, batch=batch, time=time, past=past, source_time=source_time, dtype=dtype, growth=grows
    )
