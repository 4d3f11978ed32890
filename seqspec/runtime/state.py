"""The state that one call passes to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from seqspec.diagnostics import RuntimeFault, arguments
from seqspec.graph.dims import BATCH, PAST, dim, show, windows
from seqspec.graph.signature import Signature

Array = npt.NDArray[Any]
MASK = "past_state.attention_mask"
"""Which positions of the past are real. Files read the joined mask of past and present, so the Session carries it."""

DOCUMENTS = "past_state.document_ids"
"""Which documents the tokens of the past are of, where a mask keeps documents apart."""


class State(dict[str, Array]):
    """Arrays by the signature's names for the past, batch first. Pass it back as `state`."""

    def reorder(self, rows: npt.ArrayLike) -> State:
        """The given rows of the batch, as in beam search: indices from 0, in any order, repeated or left out."""
        picked = as_array(rows, "rows")
        count = min((len(array) for array in self.values()), default=0)
        if picked.ndim != 1 or picked.dtype.kind not in "iu":
            takes = "a list of rows, which are whole numbers"
            raise arguments.refused("rows", takes, rows, code=arguments.RUNNING)
        for row in picked[(picked < 0) | (picked >= count)]:
            takes = f"rows of the batch, from 0 to {count - 1}"
            raise arguments.refused("rows", takes, int(row), code=arguments.RUNNING)
        return State({name: np.take(array, picked, axis=0) for name, array in self.items()})


def as_array(value: Any, name: str) -> Array:
    """The value as a NumPy array; a tensor is detached from its computation first."""
    try:
        return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except Exception as error:  # a caller's object may raise anything
        if "inhomogeneous" in str(error):
            text = f"`{name}` has rows of different lengths"
            raise RuntimeFault("SEQ505", text, "pad them to one length, and give a mask") from None
        said = str(error).partition("\n")[0]
        raise RuntimeFault("SEQ505", f"`{name}` cannot be read as an array: {said}") from None


def arrays(state: Any) -> dict[str, Array]:
    """The arrays of a caller's state."""
    if not isinstance(state, Mapping):
        raise _fault(f"a state is a mapping of names to arrays, not {arguments.given(state)}")
    return {str(name): as_array(value, str(name)) for name, value in state.items()}


def sizes(signature: Signature, state: Mapping[str, Array], *, masked: bool, dtype: Any) -> dict[str, int]:
    """The sizes of a state (batch, past, the encoder's time), or a fault that says why it does not fit this model.

    `masked`: whether the model keeps the mask of its past, `MASK`. `dtype` is the one the model computes in.
    """
    wanted = {s.past: (s.shape, s.dtype) for s in signature.states}
    if MASK in state and masked:
        wanted[MASK] = ((dim(BATCH), dim(PAST)), "bool")
    missing, unknown = wanted.keys() - state.keys(), state.keys() - wanted.keys()
    if missing or unknown:
        what = f"it lacks {_some(missing)}" if missing else f"the model has no {_some(unknown)}"
        raise _fault(f"the state is not this model's: {what}")
    found: dict[str, int] = {}
    for name, (shape, kind) in wanted.items():
        array = state[name]
        if array.dtype != (dtype if kind == "float" else np.dtype(kind)):
            raise _fault(f"`{name}` in the state is {array.dtype}, not {dtype if kind == 'float' else kind}")
        fits = len(shape) == array.ndim
        for size, length in zip(shape, array.shape, strict=False):
            fits = fits and (size if isinstance(size, int) else found.setdefault(str(size), length)) == length
        if not fits:
            seen = ", ".join(str(size if isinstance(size, int) else found.get(str(size), size)) for size in shape)
            raise _fault(f"`{name}` in the state is {list(array.shape)}, not [{seen}], that is {show(shape)}")
    if masked and PAST not in found:
        raise _fault(f"the state lacks `{MASK}`, which says how long the past is")
    return found


def check_windows(signature: Signature, sizes: Mapping[str, int], mask: Array | None) -> None:
    """SEQ509 if a state kept for a window lacks tokens that a window may show. `mask`[B, P] tells what is real."""
    past = sizes.get(PAST, 0)
    real = np.ones((sizes[BATCH], past), bool) if mask is None else mask
    kept: dict[str, tuple[str, int]] = {}
    for state in signature.states:
        for name, size in windows(state.shape).items():
            kept.setdefault(name, (state.past, size))  # all layers with this window keep as much
    for name, (path, size) in kept.items():
        length = sizes[name]
        needed = np.minimum(real.sum(1), size - 1)
        if length > past or (real[:, past - length :].sum(1) < needed).any():
            text = f"`{path}` in the state has {length} positions, too few or too many for a past of {past}"
            raise _fault(f"{text}, of which the mask says what is real")


def _some(found: set[str]) -> str:
    shown = [f"`{name}`" for name in sorted(found)]
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


def _fault(text: str) -> RuntimeFault:
    return RuntimeFault("SEQ509", text, "pass back what `run` returned as `.state`")
