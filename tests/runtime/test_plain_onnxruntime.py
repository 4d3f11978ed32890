"""examples/run_with_onnxruntime.py: a compiled folder needs onnxruntime and NumPy, and nothing of ours."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_targets import EXAMPLES, spec

import seqspec

SCRIPT = EXAMPLES / "run_with_onnxruntime.py"
NAMES = (
    "gpt2",
    "llama-3.2-1b",
    "hybrid-window",
    "elman-language-model",
    "nmt-bahdanau",
    "nmt-luong",
    "transformer-base",
)
COUNT = 7


@pytest.mark.parametrize("name", NAMES)
def test_it_generates_our_ids(name: str, tmp_path: Path) -> None:
    folder = seqspec.to_onnx(spec(name), tmp_path / "out", seed=2, verify=False)
    plain = runpy.run_path(str(SCRIPT))
    ids = np.random.default_rng(4).integers(1, 61, (3, 5))
    start = 1 if "encoder" in seqspec.Session(folder).roles else None
    options: dict[str, Any] = {} if start is None else {"decoder_start_id": start}
    wanted = seqspec.Session(folder).generate(ids, max_new_tokens=COUNT, **options)
    assert plain["generate"](plain["Model"](folder), ids, COUNT, start).tolist() == wanted.tolist()


def test_seqspec_is_not_there(tmp_path: Path) -> None:
    """As a program, where nothing of ours can be imported."""
    folder = seqspec.to_onnx(spec("gpt2"), tmp_path / "out", seed=2, verify=False)
    hide = "import runpy, sys; sys.modules['seqspec'] = None; del sys.argv[0]"
    hide += "; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", hide, str(SCRIPT), str(folder), "--ids", "5,6,7", "--max-new-tokens", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    wanted = seqspec.Session(folder).generate([5, 6, 7], max_new_tokens=4)
    assert done.stdout.strip() == ",".join(map(str, wanted))
