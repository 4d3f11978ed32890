"""The exact cost of a model, from its graph alone: `seqspec.report(spec)`."""

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
    """Parameters, FLOPs (2 per multiply-add) and bytes of a spec, for a call of `time` tokens after `past` cached ones.

    `time` is 128 by default, or less if a learned position table is shorter; `source_time` is the number of tokens or
    frames that an encoder reads, `time` by default. `dtype` is that of weights and states. RuntimeFault (SEQ506) where
    the call is longer than a position table.
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
