"""Case 39: labels are shifted once, by the model, and exactly where the stack reads no future."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from end_to_end import PLAIN_NORM, agree, gen, in_torch

LOGITS = [
    [1.9709, 1.7264, 0.67, -0.7016, -1.7432],
    [-1.9649, -1.2625, 0.0336, 1.314, 1.9763],
    [1.7092, 0.6382, -0.733, -1.7594, -1.9584],
    [-1.2363, 0.0672, 1.3391, 1.9812, 1.6915],
]
DECODER_LOGITS = [
    [0.8548, -0.5111, -1.6366, -1.9923, -1.4111],
    [-0.1662, 1.1569, 1.9358, 1.8043, 0.8242],
    [-0.5435, -1.6557, -1.9891, -1.3871, -0.1326],
]
IDS = [2, 0, 3, 1]
ONCE, NOT_SHIFTED, TWICE = 1.145159154, 3.306985076, 3.608582624


def model(role: str, ids: list[int], logits: list[list[float]], encoder: str = "", layers: str = "") -> torch.nn.Module:
    """A model that gives `logits[n]` wherever it reads `ids[n]`: they are the id's row of the token table."""
    table = np.zeros((5, 5))
    table[ids] = logits
    layers = layers or "{kind: linear, size: 5}"
    weights = {f"{role}.embed_tokens.weight": table, "head.weight": np.eye(5)}
    if "linear" in layers:
        weights[f"{role}.layers.0.linear.weight"] = np.eye(5)
    spec = f"""
{encoder}
{role}:
  input: {{kind: tokens, vocab_size: 5, d_model: 5}}
  layers: [{layers}]
  {f"norm: {PLAIN_NORM}" if "block" in layers else ""}
  {"final_norm: false" if "block" in layers else ""}
head: {{kind: lm}}
"""
    return in_torch(spec, weights).double()


def loss(found: torch.nn.Module, labels: list[int], **inputs: list[int]) -> float:
    given = {name: torch.tensor([ids]) for name, ids in inputs.items()}
    return found(**given, labels=torch.tensor([labels])).loss.item()


def test_39_the_case_s_numbers_are_these() -> None:
    np.testing.assert_array_equal(gen((1, 4, 5), 1, 2.0)[0], LOGITS)
    np.testing.assert_array_equal(gen((3, 5), 2, 2.0), DECODER_LOGITS)


def test_39a_labels_that_are_the_input_are_shifted_once() -> None:
    found = loss(model("decoder", IDS, LOGITS), IDS, input_ids=IDS)
    agree(found, ONCE, not_=NOT_SHIFTED)
    agree(found, ONCE, not_=TWICE)


def test_39a_a_stack_that_reads_the_future_shifts_nothing() -> None:
    agree(loss(model("encoder", IDS, LOGITS, layers=SEES_ALL), IDS, input_ids=IDS), NOT_SHIFTED, not_=ONCE)


SEES_ALL = "{block: [{kind: attention, heads: 1}]}"  # with weights of zero: it adds nothing


def test_39b_the_mean_is_over_the_labels_that_count() -> None:
    found = loss(model("decoder", IDS, LOGITS), [2, -100, 3, 1], input_ids=IDS)
    agree(found, 1.335274815, not_=0.8901832098)


def test_39c_a_decoder_behind_an_encoder_is_no_exception() -> None:
    """The target with its start in front is what the decoder reads, and its labels: nobody shifts by hand."""
    encoder = f"""
encoder:
  input: {{kind: tokens, vocab_size: 5, d_model: 5}}
  norm: {PLAIN_NORM}
  layers: [{SEES_ALL}]
"""
    cross = "{block: [{kind: cross_attention, from: encoder, heads: 1}]}"
    found = model("decoder", [4, 2, 0], DECODER_LOGITS, encoder, cross)
    target = [4, 2, 0, 3]
    agree(loss(found, target, input_ids=[1, 1], decoder_input_ids=target[:-1]), 2.7069193)
    # the last position has nothing to predict: its own label is the one that is told apart
    agree(loss(found, target, input_ids=[1, 1], decoder_input_ids=target), 2.7069193)


@pytest.mark.parametrize("role", ["decoder", "encoder"])
def test_39d_nothing_that_counts_is_a_loss_of_zero(role: str) -> None:
    found = model(role, IDS, LOGITS)
    out = found(torch.tensor([IDS]), labels=torch.full((1, 4), -100))
    out.loss.backward()
    assert out.loss.item() == 0
    assert all(not p.grad.any() for p in found.parameters() if p.grad is not None)
