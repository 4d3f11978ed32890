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

import numpy as np
import onnxruntime as ort

import seqspec
from benchmarks.pairs import Run, environment, paired, shown, table
from benchmarks.specs import WINDOWS

STEPS = ((256, 1900), (512, 1900), (4096, 1900), (4096, 300), (4096, 700))


def step(file: Path, past: int, kept: int) -> Run:
    """One new token after `past`, of which the caches have `kept`."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(file, options)
    inputs = {"input_ids": np.array([[5]]), "attention_mask": np.ones((1, past + 1), np.int64)}
    random, taken = np.random.default_rng(0), [value for value in session.get_inputs() if value.name not in inputs]
    shapes = {value.name: (1, value.shape[1], kept, value.shape[3]) for value in taken}
    arrays = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    caches = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    binding = session.io_binding()

    def run() -> None:
        binding.clear_binding_outputs()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for name, value in caches.items():
            binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name, "cpu")
        session.run_with_iobinding(binding)

    return run


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
            kept = min(past, size + size // 16)
            columns = {
                "control": partial(step, files[0], past, past),
                "window": partial(step, files[1], past, kept),
            }
            ratios = paired(step(files[0], past, past), columns, asked.pairs, asked.openings)
            found.append([f"window {size}, past {past}", *map(shown, ratios.values())])
    print(environment())
    print(table(["over the whole past", *columns], found))


if __name__ == "__main__":
    main()
