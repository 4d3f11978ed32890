"""What a model costs, exactly and from the graph alone: `seqspec.report(spec)`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from seqspec.build import build
from seqspec.checking import load
from seqspec.reports.summary import Part, Summary, summarise
from seqspec.spec.model import Model

__all__ = ["Part", "Summary", "report", "summarise"]


def report(
    spec: Model | str | os.PathLike[str] | Mapping[str, Any],
    *,
    batch: int = 1,
    time: int = 128,
    past: int = 0,
    source_time: int | None = None,
    dtype: str = "float32",
) -> Summary:
    """Parameters, FLOPs and bytes of a spec for one call; `source_time` is the length the encoder reads."""
    model = spec if isinstance(spec, Model) else load(spec)
    sizes = {"batch": batch, "time": time, "past": past}
    return summarise(build(model), model.name, **sizes, source_time=source_time, dtype=dtype)
