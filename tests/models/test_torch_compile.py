"""torch.compile for real, on one model that attends and one that recurs: what a compile costs, no other test pays."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from shrink import shrink

import seqspec

EXAMPLES = Path(__file__).parents[2] / "examples"
IDS = torch.tensor([[3, 1, 4, 1, 5], [0, 0, 2, 6, 5]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()


def small(name: str) -> torch.nn.Module:
    return seqspec.to_torch(shrink(seqspec.load(EXAMPLES / f"{name}.yaml")), seed=0).double()


@torch.no_grad()
def test_a_decoder_compiles_whole() -> None:
    model = small("tiny-llama").eval()
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(IDS, MASK).logits, model(IDS, MASK).logits, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_a_compiled_decoder_trains() -> None:
    model, gradients = small("tiny-llama"), []
    for run in (model, torch.compile(model, fullgraph=True, dynamic=True)):
        model.zero_grad()
        out = run(IDS, MASK, labels=IDS)
        out.loss.backward()
        gradients.append([out.logits.detach(), *(p.grad.clone() for p in model.parameters())])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_recurrent_model_compiles_around_its_kernel() -> None:
    model = small("gru-forecast").eval()
    compiled = torch.compile(model, dynamic=True)
    generator = torch.Generator().manual_seed(0)
    for batch, length in ((2, 5), (3, 7)):
        x = torch.randn(batch, length, 5, generator=generator, dtype=torch.float64)
        mask = (torch.arange(length) < torch.tensor([[length], [2], [1]])[:batch]).long()
        torch.testing.assert_close(compiled(x, mask)[0], model(x, mask)[0], rtol=0, atol=1e-12)
