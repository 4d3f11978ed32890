"""The data file piece by piece: the same bytes as NumPy's own, and no more memory than two of the largest tensor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seqspec.backends.onnx.data import Buffers, pieces

WIDE = 700_001  # more numbers than a piece has
ARRAYS = {
    "a scalar": np.array(3.0, np.float32),
    "nothing": np.zeros((0, 5), np.float32),
    "a row": np.arange(WIDE, dtype=np.float32),
    "rows": np.arange(3 * WIDE, dtype=np.float32).reshape(3, WIDE),
    "a transpose": np.arange(1000 * 1537, dtype=np.float32).reshape(1537, 1000).T,
    "a narrow transpose": np.arange(WIDE, dtype=np.float16).reshape(1, WIDE).T,
    "a wide transpose": np.arange(2 * WIDE, dtype=np.float32).reshape(WIDE, 2).T,
    "a transpose of nothing": np.zeros((0, 5), np.float32).T,
    "every other row": np.arange(6000, dtype=np.uint8).reshape(60, 100)[::2],
    "more axes": np.arange(2 * 3 * 5 * 7, dtype=np.int64).reshape(2, 3, 5, 7).transpose(3, 1, 0, 2),
}
EXPORT = """
import re, sys
from pathlib import Path
import seqspec, seqspec.backends.onnx, seqspec.runtime.verify
def memory(field):
    return int(re.search(field + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
held = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
seqspec.to_onnx(sys.argv[1], sys.argv[2], verify=False)
print(memory("VmHWM") - held)
"""
SPEC = """
seqspec: 1
name: large
decoder:
  input: {kind: tokens, vocab_size: 40000}
  d_model: 1024
  norm: rmsnorm
  position: rope
  layers: [{repeat: 16, block: [{kind: attention, heads: 8}, {kind: ffn, d_ff: 4096}]}]
head: {kind: lm}
"""


@pytest.mark.parametrize("name", ARRAYS)
def test_pieces_are_the_array_in_order(name: str) -> None:
    array = ARRAYS[name]
    assert b"".join(piece.tobytes() for piece in pieces(array, Buffers())) == array.tobytes()


def test_a_large_transpose_is_never_copied_whole() -> None:
    array = ARRAYS["a transpose"]
    assert max(piece.nbytes for piece in pieces(array, Buffers())) < array.nbytes / 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
def test_memory_is_bounded_by_the_largest_tensor(tmp_path: Path) -> None:
    """1.1 GB of weights, of which the embedding is the largest tensor."""
    command = [sys.executable, "-c", EXPORT, SPEC, str(tmp_path / "out")]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (tmp_path / "out" / "model.onnx.data").stat().st_size > 1_000_000_000
    assert peak < 2 * 40000 * 1024 * 4 + 500_000_000
