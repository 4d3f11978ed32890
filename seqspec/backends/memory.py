"""Checks whether a model fits this machine, before anything is allocated."""

from __future__ import annotations

import os
import shutil
from math import prod
from pathlib import Path

from seqspec.diagnostics import CompileError
from seqspec.graph.dims import Dim
from seqspec.graph.ir import Graph, Param

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_CGROUP = Path("/sys/fs/cgroup")


def refuse_if_too_large(graph: Graph, dtype: str, directory: Path | None = None) -> None:
    """SEQ402 if the weights do not fit on the disk, or the largest one does not fit into memory twice.

    Weights are made, converted and written one by one, so memory holds at most two copies of one of them.
    """
    params = graph.root.params
    if not params:
        return
    largest = max(params, key=_count)
    total = sum(map(_count, params)) * BYTES[dtype]
    _refuse(total, free_disk(directory), "disk", largest)
    _refuse(2 * _count(largest) * BYTES["float32"], free_memory(), "memory", largest)


def refuse_if_too_large_at_once(graph: Graph) -> None:
    """SEQ402 if the weights do not all fit into memory together, as PyTorch needs them."""
    params = graph.root.params
    if params:
        total = sum(map(_count, params)) * BYTES["float32"]
        _refuse(total, free_memory(), "memory", max(params, key=_count))


def _refuse(needed: int, found: int | None, what: str, largest: Param) -> None:
    if found is not None and needed > found:
        raise CompileError(
            "SEQ402",
            f"The weights need {_size(needed)} of {what}, and {_size(found)} are free; "
            f"the largest is `{largest.name}` with {_count(largest):,} numbers.",
        )


def free_disk(directory: Path | None) -> int | None:
    """Free bytes on the disk where `directory` is or will be; None if unknown."""
    place = Path(os.path.abspath(directory or "."))
    existing = next((p for p in (place, *place.parents) if p.exists()), None)
    if existing is None:
        return None
    found = shutil.disk_usage(existing)
    return found.free if found.total else None  # /proc and its like have no size, and say what is wrong when written to


def free_memory() -> int | None:
    """Bytes that this process may still allocate, by the machine and its control group's limit; None if unknown."""
    found = [size for size in (_machine(), _group()) if size is not None]
    return min(found, default=None)


def _machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows
        return None


def _group() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = (_CGROUP / "memory.current").read_text().strip()
    except OSError:
        return None
    return max(0, int(limit) - int(used)) if limit.isdecimal() else None


def _count(param: Param) -> int:
    return prod(size for size in param.shape if not isinstance(size, Dim))


def _size(count: int) -> str:
    value, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.1f} {units[0]}" if units[0] != "bytes" else f"{count} bytes"
