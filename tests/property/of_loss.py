"""What holds of the loss of every spec whose head has one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from seqspec.graph.dims import BATCH, TIME, evaluate, names
from seqspec.graph.interpret import interpret

from .batches import Array, Batch
from .case import Arrays, Case, state_of, tensors
from .errors import same
from .of_torch import spans, switches
from .rounds import Property


def is_its_reference(case: Case) -> float | None:
    """With labels, the emitted file's loss in float64 = the NumPy face of its op; without, there is none."""
    training = case.spec.graph.training
    if training is None or not learns(case):
        return None
    assert case.double(**tensors(case.batch.inputs, torch.float64)).loss is None
    given = {**case.batch.inputs, "labels": labels(case)}
    weights = {name: array.astype(np.float64) for name, array in case.weights.items()}
    values, _ = interpret(training, np, weights, [given.get(value.name) for value in training.inputs])
    return same({"loss": np.asarray(loss(case, given))}, {"loss": values[-1]}, 1e-10)


def padding_changes_nothing(case: Case) -> float | None:
    """The loss of a padded batch = the mean over the labels of its rows alone, without a mask."""
    if not learns(case) or not all(real.any(1).all() for real in case.batch.real.values()):
        return None
    total, number, targets = 0.0, 0, labels(case)
    timed = not case.spec.pooled
    for n in range(case.batch.size):
        row, kept = case.batch.compact(n), case.batch.seen(case.batch.last)[n]
        own = targets[n : n + 1][:, kept] if timed else targets[n : n + 1]
        count = counted(own[:, 1:] if shifts(case) else own)
        total += count * loss(case, {**row.inputs, "labels": own})
        number += count
    found = loss(case, {**case.batch.inputs, "labels": targets})
    return same({"loss": np.asarray(found)}, {"loss": np.asarray(total / max(number, 1))}, 1e-11)


def chunks_are_the_whole(case: Case) -> float | None:
    """The losses of chunks, each with the label that follows it, weighted by their labels = the loss of the whole."""
    if not learns(case) or not case.spec.signature.states or switches(case):
        return None
    real = case.batch.real[case.batch.last.prefix]
    begins = real[:, :1].sum(1) + (np.diff(real.astype(int), axis=1) == 1).sum(1)
    if case.spec.pooled or (begins > 1).any():  # behind a chunk may be a hole, which has no label
        return None
    targets = labels(case)
    if targets.ndim == 2:
        targets = np.where(real, targets, -100)
    shift, state, total, number = shifts(case), None, 0.0, 0
    for start, stop in spans(case.batch):
        own = targets[:, start : stop + shift]
        given = {**case.chunk(case.batch, start, stop, state), "labels": own}
        out = case.double(**tensors(given, torch.float64), **state_of(state))
        state = out.state
        kept, behind = real[:, start:stop], own[:, shift:]
        count = counted(behind[kept[:, : behind.shape[1]]])
        total += count * out.loss.item()
        number += count
    whole = loss(case, {**case.batch.inputs, "labels": targets})
    return same({"loss": np.asarray(total / max(number, 1))}, {"loss": np.asarray(whole)}, 1e-11)


def every_loss_trains(case: Case) -> float | None:
    """Gradients of the loss are finite, whatever is padded."""
    if not learns(case):
        return None
    case.double.zero_grad()
    given = tensors({**case.batch.noise(wild=True).inputs, "labels": labels(case)}, torch.float64)
    case.double(**given).loss.backward()
    for name, parameter in case.double.named_parameters():
        assert parameter.grad is None or bool(parameter.grad.isfinite().all()), name
    case.double.zero_grad()
    return 0.0


# ---- what they share ---------------------------------------------------------------------------------------------


def learns(case: Case) -> bool:
    """Whether one head has labels, one for each position or row; those of CTC have a length of their own."""
    training = case.spec.graph.training
    if training is None or case.spec.model.head is None:
        return False
    return not any("label_length" in names(n) for v in training.inputs for n in v.shape)


def labels(case: Case) -> Array:
    """Labels for the batch, some of them -100; NaN at padding where they are numbers."""
    training, batch = case.spec.graph.training, case.batch
    assert training is not None
    port = next(v for v in training.inputs if v.name == "labels")
    logits = training.outputs[0]
    shape = tuple(evaluate(size, {BATCH: batch.size, **_times(batch)}) for size in port.shape)
    random = np.random.default_rng(batch.seed + 2)
    if port.dtype == "float":
        numbers = random.standard_normal(shape)
        real = batch.seen(batch.last)[..., None]
        return np.where(real, numbers, np.nan) if len(shape) == 3 else numbers
    ids = random.integers(0, int(str(logits.shape[-1])), shape)
    return np.where(random.random(shape) < 0.2, -100, ids)


def loss(case: Case, given: Arrays) -> float:
    """The loss in float64."""
    with torch.no_grad():
        return float(case.double(**tensors(given, torch.float64)).loss)


def counted(found: Array) -> int:
    """How many of these labels a mean is over."""
    return int(found.size if found.dtype.kind == "f" else (found != -100).sum())


def shifts(case: Case) -> bool:
    """Whether labels are the input's own, one position on."""
    head: Any = case.spec.model.head
    return bool(head.kind == "lm" and case.spec.facts.causal)


def _times(batch: Batch) -> dict[str, int]:
    return {TIME: batch.last.length, "encoder_sequence_length": batch.sides[0].length}


PROPERTIES = (
    Property("loss = reference", is_its_reference),
    Property("padded loss = alone", padding_changes_nothing),
    Property("chunked loss = whole", chunks_are_the_whole),
    Property("loss has finite gradients", every_loss_trains),
)
