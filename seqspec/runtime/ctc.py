"""Greedy CTC decoding: the likeliest id of every frame, with repeats merged and blanks removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from seqspec.components.ctc import Ctc
from seqspec.diagnostics import RuntimeFault, arguments
from seqspec.graph.dims import TIME, evaluate
from seqspec.runtime.session import Session
from seqspec.runtime.state import Array

if TYPE_CHECKING:
    from torch import nn

_TIME = {"input_features": 1}
"""The axis of time in a row of an input, where it is not the first."""


def greedy(logits: Array, real: Array | None = None, *, blank_id: int = 0) -> list[Array]:
    """logits[B, T, V], real[B, T]? -> ids of each row: repeats are merged, then blanks removed, which separate repeats.

    This is the likeliest path and not always the likeliest text, whose paths add up.
    """
    found = []
    for row, scores in enumerate(logits):
        best = np.argmax(scores if real is None else scores[np.asarray(real[row], bool)], -1)
        changes = np.ones(len(best), bool)
        changes[1:] = best[1:] != best[:-1]
        found.append(best[changes & (best != blank_id)])
    return found


def transcribe(model: Any, inputs: Mapping[str, npt.ArrayLike], *, blank_id: int | None = None) -> list[Array]:
    """The ids that a model with `head: {kind: ctc}` recognizes in each row, without padding.

    A Session knows its `blank_id`; a module has to be told it, and what is padding by an `attention_mask`.
    """
    if not isinstance(model, Session):
        return _of_module(model, inputs, _told(blank_id))
    from seqspec.checking import load

    head = load(model.path / "spec.yaml").head
    if not isinstance(head, Ctc):
        raise _no_ctc()
    if blank_id not in (None, head.blank_id):
        raise arguments.refused("blank_id", f"nothing, or the spec's {head.blank_id}", blank_id, code=arguments.RUNNING)
    logits = model.run(inputs)["logits"]
    return greedy(logits, _real(model, inputs, logits), blank_id=head.blank_id)


def _of_module(module: nn.Module, inputs: Mapping[str, npt.ArrayLike], blank_id: int) -> list[Array]:
    """Runs each row by itself, without padding: a module does not tell how much shorter than its input logits are."""
    import torch

    first = next(module.parameters())
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    mask = arrays.pop("attention_mask", None)
    found, training = [], module.training
    module.eval()
    try:
        for row in range(len(next(iter(arrays.values())))):
            given = {name: array[row] for name, array in arrays.items()}
            if mask is not None:
                given = {name: a.compress(mask[row] != 0, _TIME.get(name, 0)) for name, a in given.items()}
            tensors = {name: torch.as_tensor(a, device=first.device)[None] for name, a in given.items()}
            with torch.no_grad():
                output = module(**tensors)
            if getattr(output, "logits", None) is None or output.logits.ndim != 3:
                raise _no_ctc()
            found += greedy(output.logits.float().cpu().numpy(), blank_id=blank_id)
    finally:
        module.train(training)
    return found


def _no_ctc() -> RuntimeFault:
    text = "only a model with `head: {kind: ctc}` is read in this way"
    return RuntimeFault("SEQ511", text, "a decoder with `head: {kind: lm}` generates")


def _told(blank_id: int | None) -> int:
    arguments.whole(blank_id, "blank_id", code=arguments.RUNNING)
    assert blank_id is not None
    return int(blank_id)


def _real(session: Session, inputs: Mapping[str, npt.ArrayLike], logits: Array) -> Array | None:
    """[B, T] in the logits' time, from the input's mask or ids: what becomes of sound stands before the padding."""
    port = next(p for p in session.inputs if p.name in session.facts and p.timed and not p.optional)
    fact = session.facts[port.name]
    given = inputs.get(fact.mask) if fact.mask else None
    if given is None and fact.pad_id is None:
        return None
    mask: Array = np.asarray(inputs[port.name]) != fact.pad_id if given is None else np.asarray(given) != 0
    if not port.is_sound:
        return mask
    time = next(p.shape[1] for p in session.outputs if p.name == "logits")
    counts = np.array([evaluate(time, {TIME: int(n)}) for n in mask.sum(1)])
    front: Array = np.arange(logits.shape[1]) < counts[:, None]
    return front
