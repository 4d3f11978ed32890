"""What it costs to write a model: CPU seconds and peak memory of each exporter, in a process of its own.

    python benchmarks/export.py [--big] [--only EXPORTER …] [--runs 5] [--peers PYTHON]

The model is LLaMA-like with 31 M parameters, or 381 M (1.5 GB) with `--big`; all read one safetensors file. Runs go in
turn and medians are printed. PYTHON is an interpreter that has the other exporters' packages (see
`benchmarks/peers.py`); one that is not installed there is said to be missing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
# without this folder, wherever it stands: it has files with the names of packages
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry).resolve() != HERE)]
os.environ["OMP_NUM_THREADS"] = "1"

from benchmarks.pairs import environment, table
from benchmarks.peers import made

EXPORTERS = ("cpu", "portable", "cpu, int4", "genai", "mobius", "torch.onnx.export", "transformers.exporters")
BIG = {"layers": 28, "width": 1024, "heads": 16, "feed": 2816, "words": 32000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--big", action="store_true", help="1.5 GB of weights")
    parser.add_argument("--only", nargs="+", default=EXPORTERS, choices=EXPORTERS, metavar="EXPORTER")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    asked = parser.parse_args()
    from benchmarks.checkpoints import decoder

    spent: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    wrong: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as place:
        checkpoint = Path(place, "checkpoint")
        decoder(checkpoint, **(BIG if asked.big else {}))
        for _ in range(asked.runs):
            for name in (n for n in asked.only if n not in wrong):
                found = made(name, checkpoint, Path(place, "out"), asked.peers)
                if isinstance(found, str):
                    wrong[name] = found
                else:
                    spent[name].append(found)
    print(environment())
    rows = []
    for name in asked.only:
        middle = {key: statistics.median(run[key] for run in spent[name]) for key in (spent[name] or [{}])[0]}
        cells = (
            [f"{middle['export']:.2f}", f"{middle['imports']:.2f}", f"{middle['memory'] / 1e6:.0f}"] if middle else []
        )
        rows.append([name, *(cells or [wrong[name], "", ""])])
    print(table(["exporter", "build and save, CPU s", "imports, CPU s", "peak above imports, MB"], rows))


if __name__ == "__main__":
    main()
