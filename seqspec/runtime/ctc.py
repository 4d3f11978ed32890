"""What a CTC head says: the likeliest id of every frame, without repeats and blanks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from seqspec.components.ctc import Ctc
from seqspec.diagnostics import RuntimeFault
from seqspec.graph.dims import TIME, evaluate
from seqspec.runtime.cases import time_axis, timed
from seqspec.runtime.session import Session
from seqspec.runtime.state import Array


def greedy(logits: Array, real: Array | None = None, *, blank_id: int = 0) -> list[Array]:
    """logits[B, T, V], real[B, T]? -> ids of each row: repeats become one, then blanks go, so that a blank parts two.

    This is the likeliest path and not always the likeliest text, whose paths add up.
    """
    found = []
    for row, scores in enumerate(logits):
        best = np.argmax(scores if real is None else scores[np.asarray(real[row], bool)], -1)
        changes = np.ones(len(best), bool)
        changes[1:] = best[1:] != best[:-1]
        found.append(best[changes & (best != blank_id)])
    return found


def transcribe(session: Session, inputs: Mapping[str, npt.ArrayLike]) -> list[Array]:
    """The ids that a model with `head: {kind: ctc}` hears in each row, padding left out."""
    from seqspec.checking import load

    head = load(session.path / "spec.yaml").head
    if not isinstance(head, Ctc):
        text = "only a model with `head: {kind: ctc}` is read in this way"
        raise RuntimeFault("SEQ511", text, "a decoder with `head: {kind: lm}` generates")
    logits = session.run(inputs)["logits"]
    return greedy(logits, _real(session, inputs, logits), blank_id=head.blank_id)


def _real(session: Session, inputs: Mapping[str, npt.ArrayLike], logits: Array) -> Array | None:
    """[B, T] of the logits' time, from the mask of the input, or its ids: what sound becomes stands in front."""
    port = next(p for p in session.inputs if p.name in session.facts and timed(p) and not p.optional)
    fact = session.facts[port.name]
    given = inputs.get(fact.mask) if fact.mask else None
    if given is None and fact.pad_id is None:
        return None
    mask: Array = np.asarray(inputs[port.name]) != fact.pad_id if given is None else np.asarray(given) != 0
    if time_axis(port) == 1:
        return mask
    time = next(p.shape[1] for p in session.outputs if p.name == "logits")
    counts = np.array([evaluate(time, {TIME: int(n)}) for n in mask.sum(1)])
    front: Array = np.arange(logits.shape[1]) < counts[:, None]
    return front
