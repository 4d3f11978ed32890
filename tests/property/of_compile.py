"""What holds of compiling every spec: what checks compiles, and the same meaning gives the same bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import seqspec
from seqspec.api import resolved

from .case import Case, narrow
from .digests import digests, digests_of
from .errors import same_single
from .of_torch import spans, switches, told
from .rounds import Property
from .strategy import Spec


def resolving_twice_is_resolving_once(case: Case) -> float:
    """`show --resolved` is a valid spec, a fixed point, and compiles to the same bytes."""
    text = resolved(case.spec.text)
    assert resolved(text) == text
    assert digests(text) == digests(case.spec.text)
    return 0.0


def only_what_is_said_counts(case: Case) -> float:
    """Comments and the order of keys change no byte."""
    turned = Spec(_turned(case.spec.data)).text
    text = "# a comment\n" + turned.replace("\nname:", "  # another\nname:")
    assert digests(text) == digests(case.spec.text)
    return 0.0


def what_checks_compiles(case: Case) -> float:
    """Mutants of the spec: refused with a SpecError, or compiled to source and ONNX."""
    random = np.random.default_rng(case.batch.seed)
    for _ in range(3):
        data = mutant(case.spec.data, random)
        try:
            model = seqspec.load(data)
        except seqspec.SpecError:
            continue
        try:
            digests_of(model)
        except Exception as error:
            raise AssertionError(f"this checks and does not compile: {error!r}\n\n{Spec(data).text}") from error
    return 0.0


def a_session_is_torch(case: Case) -> float:
    """Through the public surface: compiled, verified, opened, run in chunks where it may be = torch at once."""
    batch = case.batch.unplaced().masked()
    with tempfile.TemporaryDirectory() as folder:
        path = seqspec.to_onnx(case.spec.model, Path(folder) / "out", weights=case.weights, seed=batch.seed)
        session = seqspec.Session(path)
        parts, state = [], None
        whole = not case.spec.signature.states or switches(case)
        chunks = [(0, batch.last.length)] if whole else spans(batch, empty=False)
        for start, stop in chunks:
            result = session.run(narrow(case.chunk(batch, start, stop, state)), state)
            parts.append(dict(result))
            state = result.state
    got, want = told(case, parts, case.run(batch, case.single))
    return same_single(got, want, told(case, parts, case.run(batch))[1], lambda: case.costs(batch))


# ---- mutants -----------------------------------------------------------------------------------------------------

_WORDS = ("none", "rope", "causal", "lstm", "x", "encoder", "first")
_STRANGE = (0, 1, 2, 3, 7, 0.5, 1e-5, -1, True, False, *_WORDS, [], {})


def mutant(data: Any, random: np.random.Generator) -> Any:
    """The values with one of them dropped, replaced by a strange one, or by another of the same spec."""
    places = list(_places(data, ()))
    path = places[random.integers(len(places))]
    match random.integers(3):
        case 0:
            return _edited(data, path, None)
        case 1:
            return _edited(data, path, _STRANGE[random.integers(len(_STRANGE))])
        case _:
            other = places[random.integers(len(places))]
            return _edited(data, path, _at(data, other))


def _places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


def _edited(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with `new` at the path; without what is there where `new` is None."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and new is None:
        del copy[path[0]]
    else:
        copy[path[0]] = _edited(value[path[0]], path[1:], new)
    return copy


def _turned(value: Any) -> Any:
    """Every mapping back to front."""
    if isinstance(value, dict):
        return {k: _turned(v) for k, v in reversed(value.items())}
    return [_turned(v) for v in value] if isinstance(value, list) else value


PROPERTIES = (
    Property("resolved is a fixed point", resolving_twice_is_resolving_once),
    Property("key order and comments", only_what_is_said_counts),
    Property("what checks compiles", what_checks_compiles),
    Property("Session = torch", a_session_is_torch),
)
