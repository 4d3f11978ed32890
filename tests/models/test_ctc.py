"""CTC: the loss against torch.nn.CTCLoss and every path counted, what is decoded, and a model that learns to hear."""

from __future__ import annotations

from itertools import groupby, product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import seqspec
from seqspec.diagnostics import RuntimeFault
from seqspec.runtime.ctc import greedy, transcribe

FRONT = [
    {"channels": 8, "kernel": 3, "activation": "gelu"},
    {"channels": 8, "kernel": 3, "stride": 2, "activation": "gelu"},
]
HEAD = {"kind": "ctc", "vocab_size": 4, "blank_id": 3}
BLOCK = [{"kind": "attention", "heads": 2}, {"kind": "ffn", "d_ff": 16}]


def spec(**head: object) -> dict[str, object]:
    source = {"kind": "audio", "mel_bins": 5, "convolutions": FRONT}
    stack = {"input": source, "position": "sinusoidal", "layers": [{"block": BLOCK}]}
    return {"seqspec": 1, "name": "hear", "encoder": stack, "head": HEAD | head}


def collapsed(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    return tuple(label for label, _ in groupby(path) if label != blank)


def test_the_loss_counts_every_path() -> None:
    """p(labels) = the sum over all paths that collapse to them, by hand for 5 frames of 4 ids."""
    model = seqspec.to_torch(spec(), seed=1).double().eval()
    frames = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 5, 9)))
    for labels in ([1], [2, 2], [0, 1, 2]):
        out = model(input_features=frames, labels=torch.tensor([labels]))
        shares = out.logits[0].softmax(-1).detach().numpy()
        assert shares.shape == (5, 4)
        paths = (p for p in product(range(4), repeat=5) if collapsed(p, 3) == tuple(labels))
        total = sum(np.prod([shares[t, label] for t, label in enumerate(path)]) for path in paths)
        np.testing.assert_allclose(out.loss.item(), -np.log(total) / len(labels), rtol=1e-10)


@pytest.mark.parametrize("kind", ["right", "left", "holes"])
def test_rows_of_several_lengths_cost_what_they_cost_alone(kind: str) -> None:
    model = seqspec.to_torch(spec(), seed=2).double().eval()
    random = np.random.default_rng(3)
    lengths, rows = (12, 7, 9), [[1, 2, 0], [2], [1, 1]]
    table, mask = np.full((3, 5, 14), np.nan), np.zeros((3, 14), np.int64)
    labels, losses = np.full((3, 4), -100), []
    for n, (length, row) in enumerate(zip(lengths, rows, strict=True)):
        heard = random.standard_normal((5, length))
        holes = np.sort(random.permutation(14)[:length])
        at = {"right": range(length), "left": range(14 - length, 14)}.get(kind, holes)
        table[n][:, list(at)], mask[n, list(at)] = heard, 1
        labels[n, 1 : 1 + len(row)] = row
        alone = model(input_features=torch.from_numpy(heard[None])).logits.log_softmax(-1)
        theirs = nn.CTCLoss(blank=3, reduction="mean")
        steps = torch.tensor([alone.size(1)])
        losses.append(theirs(alone.transpose(0, 1), torch.tensor([row]), steps, torch.tensor([len(row)])).item())
    given = {"input_features": table, "attention_mask": mask, "labels": labels}
    out = model(**{name: torch.from_numpy(array) for name, array in given.items()})
    np.testing.assert_allclose(out.loss.item(), np.mean(losses), rtol=1e-10)


def test_a_causal_model_goes_on_from_a_past() -> None:
    """A chunk's loss is that of its own frames, whatever the mask says of those before."""
    source = {"kind": "features", "size": 3, "d_model": 4}
    stack = {"causal": True, "input": source, "layers": [{"block": BLOCK}]}
    model = seqspec.to_torch({"seqspec": 1, "name": "hear", "encoder": stack, "head": HEAD}, seed=4).double().eval()
    frames = torch.from_numpy(np.random.default_rng(5).standard_normal((2, 9, 3)))
    mask, labels = torch.ones(2, 9, dtype=torch.int64), torch.tensor([[1, 0], [2, 2]])
    mask[0, 3:5] = 0
    begun = model(features=frames[:, :4], attention_mask=mask[:, :4])
    rest = model(features=frames[:, 4:], attention_mask=mask, labels=labels, state=begun.state)
    own = [rest.logits[0, 1:], rest.logits[1]]
    losses = [nn.CTCLoss(3)(x.log_softmax(-1), row, [len(x)], [2]) for x, row in zip(own, labels, strict=True)]
    torch.testing.assert_close(rest.loss, torch.stack(losses).mean(), rtol=1e-10, atol=0)


def test_decoding_merges_repeats_before_it_drops_blanks() -> None:
    path = [[1, 1, 3, 1, 2, 2, 3, 3], [3, 3, 3, 3, 3, 3, 3, 3], [0, 0, 1, 0, 0, 3, 0, 0]]
    logits = np.eye(4)[path]
    assert [list(row) for row in greedy(logits, blank_id=3)] == [[1, 1, 2], [], [0, 1, 0, 0]]
    real = np.array([[0, 1, 1, 0, 1, 1, 1, 1], [1] * 8, [1, 1, 0, 1, 1, 0, 0, 0]])
    assert [list(row) for row in greedy(logits, real, blank_id=3)] == [[1, 2], [], [0]]


def sounds(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[list[int]]]:
    """Ids as tones: id k is mel bin k, loud for four frames, with two silent ones behind; padding is noise."""
    random = np.random.default_rng(seed)
    texts = [list(random.integers(0, 3, random.integers(1, 5))) for _ in range(count)]
    frames, mask = random.standard_normal((count, 5, 27)) * 3, np.zeros((count, 27), np.int64)
    labels = np.full((count, 4), -100)
    for n, text in enumerate(texts):
        start = int(random.integers(0, 28 - 6 * len(text)))
        frames[n, :, start : start + 6 * len(text)] = random.standard_normal((5, 6 * len(text))) * 0.1
        for k, label in enumerate(text):
            frames[n, label, start + 6 * k : start + 6 * k + 4] += 2
        mask[n, start : start + 6 * len(text)] = 1
        labels[n, : len(text)] = text
    return frames.astype(np.float32), mask, labels, texts


def test_it_learns_to_hear(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = seqspec.to_torch(spec(), seed=0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(150):
        frames, mask, labels, _ = sounds(16, step)
        given = {"input_features": frames, "attention_mask": mask, "labels": labels}
        loss = model(**{name: torch.from_numpy(array) for name, array in given.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    session = seqspec.Session(seqspec.to_onnx(spec(), tmp_path / "out", weights=model.state_dict()))
    frames, mask, _, texts = sounds(20, 1000)
    heard = transcribe(session, {"input_features": frames, "attention_mask": mask})
    assert sum(list(row) == text for row, text in zip(heard, texts, strict=True)) >= 18
    given = {"input_features": frames, "attention_mask": mask}
    for one, other in zip(transcribe(model, given, blank_id=3), heard, strict=True):
        assert list(one) == list(other)
    assert model.training  # as it was
    with pytest.raises(RuntimeFault, match="blank_id"):
        transcribe(model, given)
    with pytest.raises(RuntimeFault, match="blank_id"):
        transcribe(session, given, blank_id=2)


def test_only_a_ctc_head_is_read_so(tmp_path: Path) -> None:
    other = spec() | {"head": {"kind": "classifier", "classes": 2, "pool": "mean"}}
    session = seqspec.Session(seqspec.to_onnx(other, tmp_path / "out"))
    with pytest.raises(RuntimeFault, match="ctc"):
        transcribe(session, {"input_features": np.zeros((1, 5, 6), np.float32)})
    with pytest.raises(RuntimeFault, match="ctc"):
        transcribe(seqspec.to_torch(other), {"input_features": np.zeros((1, 5, 6), np.float32)}, blank_id=0)
