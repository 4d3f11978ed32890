"""Convolution as a layer, against torch's own over each row's real steps, in chunks, and among other layers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import seqspec

Array = Any
T = 9
# True is real: padding on the right with a hole, on the left, nowhere, everywhere
REAL = np.array([[1, 1, 0, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9, [0] * 9])


def spec(layer: str, more: str = "") -> str:
    return f"""
        seqspec: 1
        name: series
        encoder:
          input: {{kind: features, size: 3}}
          layers: [{{kind: conv, channels: 5, {layer}}}{more}]
    """


def model_of(text: str) -> torch.nn.Module:
    return seqspec.to_torch(text, seed=1).double().eval()


def features() -> torch.Tensor:
    return torch.randn(len(REAL), T, 3, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize(
    ("layer", "dilation", "left", "right"),
    [
        ("kernel: 3", 1, 1, 1),
        ("kernel: 5, dilation: 2, bias: false", 2, 4, 4),
        ("kernel: 1", 1, 0, 0),
        ("kernel: 3, causal: true", 1, 2, 0),
        ("kernel: 2, dilation: 4, causal: true", 4, 4, 0),
    ],
)
def test_it_is_a_convolution_of_the_real_steps(
    layer: str, dilation: int, left: int, right: int, tmp_path: Path
) -> None:
    text = spec(f"{layer}, activation: relu")
    model, x, real = model_of(text), features(), torch.from_numpy(REAL)
    x = torch.where(real[..., None] > 0, x, torch.nan)
    weights = {name.rsplit(".", 1)[-1]: p.detach() for name, p in model.named_parameters()}
    with torch.no_grad():
        found = model(features=x, attention_mask=real).last_hidden_state
    path = seqspec.to_onnx(text, tmp_path / "out", weights=model.float().state_dict())
    filed = seqspec.Session(path).run({"features": x.float().numpy(), "attention_mask": REAL})["last_hidden_state"]
    for row, kept in enumerate(REAL == 1):
        assert not found[row, ~kept].any()
        if not kept.any():
            continue
        alone = F.pad(x[row, kept].T, (left, right))
        want = F.conv1d(alone[None], weights["weight"], weights.get("bias"), dilation=dilation)[0].relu().T
        torch.testing.assert_close(found[row, kept], want, rtol=0, atol=1e-10)
        np.testing.assert_allclose(filed[row, kept], want, rtol=0, atol=2e-6)


def test_by_hand() -> None:
    """Three steps of one channel, kernel 2, dilation 2: y_t = w_0 x_{t-2} + w_1 x_t + b."""
    text = (
        spec("kernel: 2, dilation: 2, causal: true").replace("size: 3", "size: 1").replace("channels: 5", "channels: 1")
    )
    model = seqspec.to_torch(text).double()
    weights = {
        "encoder.layers.0.conv.weight": torch.tensor([[[10.0, 1.0]]]),
        "encoder.layers.0.conv.bias": torch.ones(1),
    }
    model.load_state_dict(weights)
    out = model(features=torch.tensor([[[1.0], [2.0], [3.0]]]).double())
    assert out.last_hidden_state.flatten().tolist() == [2, 3, 14]
    assert out.state["past_state.0.conv.tail"].flatten().tolist() == [2, 3]


MORE = ", {kind: gru, hidden_size: 4}, {kind: conv, name: last, channels: 2, kernel: 2, causal: true, repeat: 2}"


@pytest.mark.parametrize("stops", [[0, 9], [0, 1, 2, 9], [0, 4, 4, 9], list(range(10))])
def test_chunks_are_the_whole(stops: list[int], tmp_path: Path) -> None:
    text = spec("kernel: 3, dilation: 2, causal: true", MORE)
    model, x, mask = model_of(text), features(), torch.from_numpy(REAL)
    with torch.no_grad():
        whole = model(features=x, attention_mask=mask).last_hidden_state
    session = seqspec.Session(seqspec.to_onnx(text, tmp_path / "out", weights=model.float().state_dict(), verify=False))
    model.double()
    assert list(session.state_names) == [
        "past_state.0.conv.tail", "past_state.1.gru.h", "past_state.2.last.tail", "past_state.3.last.tail"
    ]  # fmt: skip
    state, filed = None, None
    for start, stop in pairwise(stops):
        with torch.no_grad():
            out = model(features=x[:, start:stop], attention_mask=mask[:, start:stop], state=state)
        given = {"features": x[:, start:stop].float().numpy(), "attention_mask": REAL[:, start:stop]}
        made = session.run(given, filed)
        state, filed = out.state, made.state
        torch.testing.assert_close(out.last_hidden_state, whole[:, start:stop], rtol=0, atol=1e-12)
        np.testing.assert_allclose(made["last_hidden_state"], whole[:, start:stop], rtol=0, atol=2e-6)


def test_nothing_that_follows_is_seen() -> None:
    model, x = (
        model_of(spec("kernel: 4, causal: true", ", {kind: conv, channels: 2, kernel: 2, causal: true}")),
        features(),
    )
    changed = x.clone()
    changed[:, 5:] += 1
    with torch.no_grad():
        before, after = (model(features=given).last_hidden_state for given in (x, changed))
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


def test_a_decoder_is_causal_and_generates(tmp_path: Path) -> None:
    text = """
        seqspec: 1
        name: wave
        decoder:
          input: {kind: tokens, vocab_size: 11, d_model: 6, pad_id: 0}
          layers:
            - {kind: conv, channels: 6, kernel: 2, activation: tanh}
            - {kind: conv, channels: 6, kernel: 2, dilation: 2}
        head: {kind: lm, tied: true}
    """
    session = seqspec.Session(seqspec.to_onnx(text, tmp_path / "out"))
    (alone,) = session.generate([[3, 7, 1]], max_new_tokens=6)
    together = session.generate([[3, 7, 1], [9, 2]], max_new_tokens=6)
    assert list(together[0]) == list(alone)


@pytest.mark.parametrize(
    ("layer", "stack", "codes"),
    [
        ("kernel: 4", "", ["SEQ106"]),
        ("kernel: 1, dilation: 2", "", ["SEQ232"]),
        ("kernel: 3, causal: false", "causal: true", ["SEQ207"]),
        ("kernel: 0", "", ["SEQ106"]),
    ],
)
def test_what_does_not_go_together(layer: str, stack: str, codes: list[str]) -> None:
    text = spec(layer).replace("layers:", f"{stack}\n          layers:")
    assert [d.code for d in seqspec.check(text)] == codes
