"""Compares a manifest with the files that it describes: every input and output must agree in name, type and shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from seqspec.graph.dims import PAST, TIME, TOTAL, Shape, Size, dim, show
from seqspec.graph.signature import Signature

_ELEMENTS = {"float32": "float", "float16": "float16", "bfloat16": "bfloat16", "int64": "int64", "int32": "int32"}


class _Told(NamedTuple):
    shape: Shape
    dtype: str


# None if only the name is compared: a present is longer than its past
_Wanted = dict[str, _Told | None]


def disagreement(signature: Signature, dtype: str, graphs: Mapping[str, Any]) -> str | None:
    """The first difference between the signature and the inputs and outputs of onnxruntime's sessions; None if none.

    The model computes in `dtype`. The last session runs on every call, one before it on the first call only.
    """
    *early, last = graphs.values()
    ports: _Wanted = {port.name: _Told(port.shape, port.dtype) for port in signature.inputs if not port.starts}
    pasts: _Wanted = {state.past: _Told(state.shape, state.dtype) for state in signature.states}
    held: _Wanted = {state.present: _Told(state.shape, state.dtype) for state in signature.states if state.held}
    outputs: _Wanted = {port.name: _Told(port.shape, port.dtype) for port in signature.outputs}
    carried: _Wanted = {state.present: None for state in signature.states if not state.held}
    found = list(_differing(last.get_inputs(), ports | pasts, dtype))
    found += _differing(last.get_outputs(), outputs | carried, dtype, given=True)
    for session in early:
        found += _differing(session.get_inputs(), ports, dtype)
        found += _differing(session.get_outputs(), held | carried, dtype, given=True)
    taken = {value.name for session in graphs.values() for value in session.get_inputs()}
    given = {value.name for value in last.get_outputs()}
    begun = {value.name for session in early for value in session.get_outputs()}
    found += [f"no file takes `{name}`" for name in ports | pasts if name not in taken]
    found += [f"no file gives `{name}`" for name in outputs | carried if name not in given]
    found += [f"no file gives `{name}`" for name in held if name not in begun]
    return next(iter(found), None)


def _differing(values: list[Any], told: _Wanted, dtype: str, *, given: bool = False) -> Iterator[str]:
    for value in values:
        if value.name not in told:
            yield f"a file has `{value.name}`, which is not in the signature"
            continue
        wanted = told[value.name]
        if wanted is None:
            continue
        element = dtype if wanted.dtype == "float" else wanted.dtype
        if value.type != f"tensor({_ELEMENTS.get(element, element)})":
            yield f"`{value.name}` is {value.type} in the file, and {element} in the signature"
        if not _same(value.shape, wanted.shape, given=given):
            yield f"`{value.name}` is {value.shape} in the file, and {show(wanted.shape)} in the signature"


def _same(seen: list[int | str | None], told: Shape, *, given: bool) -> bool:
    """An open size fits any other. For outputs, onnxruntime may give numbers where the file has names."""
    pairs = [(size, _name(wanted)) for size, wanted in zip(seen, told, strict=False)]
    fits = (size is None or size == name or (given and type(size) is not type(name)) for size, name in pairs)
    return len(seen) == len(told) and all(fits)


def _name(size: Size) -> int | str:
    """A size as files name it: past + new is the total."""
    return size if isinstance(size, int) else TOTAL if size == dim(PAST) + dim(TIME) else str(size)
