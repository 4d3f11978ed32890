"""The weights of an executed model: of a file, of a mapping, or drawn from a seed."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import seqspec
from seqspec.backends.weights import initial
from seqspec.graph.ir import Init, Param

SMALL = """
seqspec: 1
name: small
encoder:
  input: {kind: features, size: 3}
  d_model: 5
  layers: [{block: [{kind: ffn, d_ff: 7}]}]
"""


def saved(path: Path, *, padded: str = "") -> dict[str, torch.Tensor]:
    """Weights for SMALL in a safetensors file, whose header may be longer by some spaces."""
    weights = seqspec.to_torch(SMALL, seed=3).state_dict()
    content = safetensors.torch.save(weights)
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length] + padded.encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
    return weights


@pytest.mark.parametrize("padded", ["", " "])  # tensors of a header with an odd length are not aligned
def test_a_module_has_the_weights_of_a_file_and_never_writes_there(tmp_path: Path, padded: str) -> None:
    weights = saved(tmp_path / "w.safetensors", padded=padded)
    before = (tmp_path / "w.safetensors").read_bytes()
    model = seqspec.to_torch(SMALL, weights=tmp_path / "w.safetensors")
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert (tmp_path / "w.safetensors").read_bytes() == before
    again = seqspec.to_torch(SMALL, weights=tmp_path / "w.safetensors")
    torch.testing.assert_close(again.state_dict(), weights, rtol=0, atol=0)
    assert all(p.requires_grad for p in again.parameters())


def test_a_file_may_be_replaced_while_a_module_has_its_weights(tmp_path: Path) -> None:
    weights = saved(tmp_path / "w.safetensors")
    model = seqspec.to_torch(SMALL, weights=tmp_path / "w.safetensors")
    other = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    (tmp_path / "new").write_bytes(safetensors.torch.save(other))
    (tmp_path / "new").replace(tmp_path / "w.safetensors")
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)


def test_given_weights_are_copied() -> None:
    weights = seqspec.to_torch(SMALL).state_dict()
    model = seqspec.to_torch(SMALL, weights=weights)
    for tensor in weights.values():
        tensor.zero_()
    assert all(p.any() for name, p in model.state_dict().items() if name.endswith("proj.weight"))


@pytest.mark.parametrize("shape", [(), (2,), (3,), (0, 4), (5, 7), (1 << 17,), (3, 50_000)])
def test_uniform_starts_are_those_of_the_generator(shape: tuple[int, ...]) -> None:
    bound = np.float32(1 / np.sqrt(7))
    key = int.from_bytes(blake2b(b"0:p", digest_size=16).digest(), "little")
    random = np.random.Generator(np.random.Philox(key=key)).random(shape, np.float32)
    expected = random * (2 * bound) - bound
    np.testing.assert_array_equal(initial(Param("p", shape, init=Init("uniform", (float(bound),)))), expected)
