"""Times two ways to compute the same in turn: the median ratio of CPU times, and its 95 % confidence interval."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any

Run = Callable[[], Any]
_LONG = 0.05  # the least seconds of one turn, so that the clock's resolution does not matter


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The median, and the order statistics that enclose it with a confidence of at least 95 %."""
    ordered, count = sorted(ratios), len(ratios)
    tail, low = 0.0, 0
    while low < count // 2 and tail + comb(count, low) / 2**count <= 0.025:
        tail += comb(count, low) / 2**count
        low += 1
    low = max(low - 1, 0)
    return statistics.median(ordered), ordered[low], ordered[count - 1 - low]


def seconds(run: Run, repeats: int) -> float:
    """CPU seconds of one call, all threads together."""
    begun = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - begun) / repeats


def paired(base: Run, others: Mapping[str, Callable[[], Run]], pairs: int, openings: int) -> dict[str, list[float]]:
    """Ratios to `base` by name, in pairs. Each is opened `openings` times, since its place in memory moves a ratio."""
    ratios: dict[str, list[float]] = {name: [] for name in others}
    for _ in range(openings):
        opened = {name: open_() for name, open_ in others.items()}
        for run in (base, *opened.values()):
            run()
        repeats = max(1, int(_LONG / seconds(base, 1)))
        for turn in range(-(-pairs // openings)):
            for name in list(opened)[:: 1 if turn % 2 else -1]:
                first, second = seconds(opened[name], repeats), seconds(base, repeats)
                ratios[name].append(first / second)
    return ratios


def shown(ratios: Sequence[float]) -> str:
    """`0.71 (0.69 … 0.73)`"""
    return "{:.2f} ({:.2f} … {:.2f})".format(*interval(ratios))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def environment() -> str:
    """The machine, its load, and the versions of what is measured."""
    from importlib.metadata import PackageNotFoundError, version

    def versions() -> Iterator[str]:
        for name in ("torch", "onnxruntime", "onnxruntime-gpu", "transformers"):
            try:
                yield f"{name} {version(name)}"
            except PackageNotFoundError:
                continue

    models = (
        line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    )
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    parts = [f"{os.cpu_count()} x {next(models, platform.machine())}", f"load {load}", *versions()]
    return f"One thread, CPU time. {'; '.join(parts)}.\n"
