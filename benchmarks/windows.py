"""What a step costs if layers keep only the window that they see, beside the whole past: `portable`, one new token.

    python benchmarks/windows.py [--pairs 24] [--openings 4]

The model is LLaMA-like with 31 M parameters, a window in every layer. What is kept varies by an eighth of a window; a
step is timed with half of that. `control` is the file with the whole past against itself, opened anew.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
# without this folder, wherever it stands: it has files with the names of packages
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry).resolve() != HERE)]
os.environ["OMP_NUM_THREADS"] = "1"

import seqspec
from benchmarks.pairs import environment, paired, shown, table
from benchmarks.runs import of_file
from benchmarks.specs import WINDOWS
from benchmarks.works import Work

STEPS = ((256, 1900), (512, 1900), (4096, 1900), (4096, 300), (4096, 700))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--openings", type=int, default=4, help="how often each file is opened anew")
    asked = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    found = []
    with tempfile.TemporaryDirectory() as place:
        for size, past in STEPS:
            # a folder for onnxruntime-genai keeps the whole past
            files = [
                seqspec.to_onnx(WINDOWS.format(size=size), Path(place, f"{genai}"), target="portable", genai=genai,
                                verify=False) / "model.onnx"
                for genai in (True, False)
            ]  # fmt: skip
            work = Work(f"window {size}, past {past}", "decoder", (1,), 1, past)
            columns = {
                "control": partial(of_file, files[0], work),
                "window": partial(of_file, files[1], work, min(past, size + size // 16)),
            }
            ratios = paired(of_file(files[0], work), columns, asked.pairs, asked.openings)
            found.append([work.name, *map(shown, ratios.values())])
    print(environment())
    print(table(["over the whole past", *columns], found))


if __name__ == "__main__":
    main()
