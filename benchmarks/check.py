"""What `seqspec check` of a 300-line spec costs, against a process that only imports click, yaml and pydantic.

    python benchmarks/check.py [--runs 7]

CPU seconds of whole processes, run in turn; the ratio is of the minima.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

BASE = "import click, yaml, pydantic\nclass M(pydantic.BaseModel):\n    a: int\nM(a=1)"
BLOCK = """\
    - repeat: 2
      block:
        - kind: attention
          heads: 8
          mask: {{all: [causal, {{kind: window, size: {window}}}]}}
        - kind: ffn
          d_ff: {d_ff}
          activation: silu
          gated: true
"""
HEADER = """\
seqspec: 1
name: long
decoder:
  input: {kind: tokens, vocab_size: 1000}
  d_model: 64
  position: rope
  norm: rmsnorm
  layers:
"""


def spec(lines: int) -> str:
    """A valid spec of about that many lines, no two of its blocks equal: equal ones are built once, which flatters."""
    count = (lines - HEADER.count("\n") - 1) // BLOCK.count("\n")
    blocks = (BLOCK.format(window=n + 8, d_ff=64 + n) for n in range(count))
    return f"{HEADER}{''.join(blocks)}head: {{kind: lm, tied: true}}\n"


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "long.yaml")
        path.write_text(spec(300))
        lines = path.read_text().count("\n")
        commands = {
            "imports alone": [sys.executable, "-c", BASE],
            f"check, {lines} lines": [sys.executable, "-m", "seqspec", "check", str(path)],
        }
        for command in commands.values():
            cpu_seconds(command)  # warms the caches
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                times[name].append(cpu_seconds(command))
    for name, seconds in times.items():
        print(f"{name:20} {min(seconds):.3f} s CPU (minimum of {runs})")
    base, check = (min(seconds) for seconds in times.values())
    print(f"{'ratio':20} {check / base:.2f}")


if __name__ == "__main__":
    main()
