"""Describes a compiled model's inputs, outputs and states for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from seqspec.graph.dims import BATCH, PAST, dim, show
from seqspec.graph.signature import Port
from seqspec.runtime.state import MASK

if TYPE_CHECKING:
    from seqspec.runtime.session import Session

Row = tuple[str, str, str, str]


def listing(session: Session) -> str:
    """Inputs, outputs and states, one per line: name, element type, shape and further properties."""
    inputs = [_row(session, port, "; ".join(_notes(session, port))) for port in session.inputs]
    outputs = [_row(session, port, "") for port in session.outputs]
    carried = session.signature.states
    states = [(s.past, _dtype(session, s.dtype), show(s.shape), "never changes" * s.held) for s in carried]
    if MASK in session.state_names:
        states.insert(0, (MASK, "bool", show((dim(BATCH), dim(PAST))), "which of the past is real"))
    groups = {"inputs": inputs, "outputs": outputs, "state, from call to call": states}
    widths = [max(len(row[k]) for rows in groups.values() for row in rows) for k in range(3)]
    lines = []
    for title, rows in groups.items():
        lines += [title, *("  " + _line(row, widths) for row in rows)] if rows else []
    return "\n".join(lines) + "\n"


def sentence(session: Session) -> str:
    """`input_ids int64 [batch_size, sequence_length], attention_mask int64 […] (optional)`"""
    rows = [(_row(session, port, ""), port.optional) for port in session.inputs]
    return ", ".join(f"{name} {dtype} {shape}{' (optional)' * optional}" for (name, dtype, shape, _), optional in rows)


def _row(session: Session, port: Port, notes: str) -> Row:
    return port.name, _dtype(session, port.dtype), show(port.shape), notes


def _dtype(session: Session, dtype: str) -> str:
    return str(session.dtype) if dtype == "float" else dtype


def _notes(session: Session, port: Port) -> Iterator[str]:
    fact = session.facts.get(port.name)
    if port.optional:
        yield "optional"
    if port.once:
        yield "read on the first call only"
    if fact and fact.ids is not None:
        yield f"ids from 0 to {fact.ids - 1}"
    if fact and fact.pad_id is not None:
        yield f"{fact.pad_id} is padding"
    if fact and fact.max_length is not None:
        yield f"at most {fact.max_length} positions{' in a document' if fact.documents else ''}, the past included"


def _line(row: Row, widths: list[int]) -> str:
    return "  ".join([*(f"{text:<{width}}" for text, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
