"""Models at the size that they were published in, whole: everywhere else `shrink` stands for them."""

from __future__ import annotations

from pathlib import Path

import pytest

import seqspec

EXAMPLES = Path(__file__).parents[2] / "examples"
WHOLE = ["bert-base", "gpt2", "lstm-sentiment", "nmt-luong", "t5-v1.1-small", "transformer-base", "vit-base"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WHOLE, "llama-3.2-1b"])
def test_files_agree_with_torch(name: str, tmp_path: Path) -> None:
    result = seqspec.verify(seqspec.to_onnx(EXAMPLES / f"{name}.yaml", tmp_path / name, verify=False))
    assert result.passed
    assert result.judge == "PyTorch in float64"
    assert len(result.differences) > 0
    # above 2^28 parameters every layer that differs is checked once, at its true width
    assert bool(result.note) == (name == "llama-3.2-1b")
