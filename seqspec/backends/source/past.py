"""The past as nested tuples: where to read a size off it, and STATE, its public names in the same nesting."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from seqspec.backends.source.plan import Entry, entries, groups
from seqspec.diagnostics import SeqspecError
from seqspec.graph.dims import Size
from seqspec.graph.ir import Call, Region, join

_SAFE = re.compile(r"[A-Za-z0-9_.]+")


@dataclass(frozen=True)
class Run:
    """The names in every layer of a run; `numbers` are the indices of the layers."""

    numbers: tuple[str, ...]
    layers: tuple[Names, ...]


Names: TypeAlias = "str | Run | tuple[Names, ...]"


def find(found: Sequence[Entry], size: Size) -> tuple[int, str, int] | None:
    """Where the past has this size in a tensor that is never None: (entry, path in it, axis), or None."""
    candidates = [
        (rank, number, path, axis) for number, entry in enumerate(found) for rank, path, axis in _tensors(entry, size)
    ]
    return min(candidates, key=lambda c: c[0])[1:] if candidates else None


def _tensors(entry: Entry, size: Size) -> Iterator[tuple[int, str, int]]:
    """(rank, path, axis): caches first, then other floats, then masks that cannot be None."""
    if entry.state and entry.kept:
        if size in entry.state.shape and not entry.kept.optional:
            rank = 0 if entry.state.cache else 1 if entry.state.dtype == "float" else 2
            yield rank, "", entry.state.shape.index(size)
        return
    seen: set[int] = set()  # the layers of a run may have several classes, of which only some have this size
    for layer, call in enumerate(entry.group.items):
        if not isinstance(call, Call) or id(call.region) in seen:
            continue
        seen.add(id(call.region))
        inner = entries(call.region, groups(call.region))
        for number, below in enumerate(inner):
            at = (f"[{layer}]" if entry.group.run else "") + (f"[{number}]" if len(inner) > 1 else "")
            yield from ((rank, at + path, axis) for rank, path, axis in _tensors(below, size))


def state_names(region: Region, public: Mapping[str, str]) -> Names:
    """The public names of a region's states, nested as its past is."""
    return _names(region, public, "", {})


def _names(region: Region, public: Mapping[str, str], scope: str, known: dict[int, list[Entry]]) -> Names:
    """`known` has the entries of regions that were met before, as those of a layer are."""
    found = known.get(id(region))
    if found is None:
        found = known[id(region)] = entries(region, groups(region))
    parts: list[Names] = []
    for entry in found:
        if entry.state:
            parts.append(public[join(scope, entry.path)])
            continue
        layers = []
        for call in entry.group.items:
            assert isinstance(call, Call)
            layers.append(_names(call.region, public, join(scope, call.scope), known))
        if entry.group.run:
            numbers = (str(item.scope).rpartition(".")[2] for item in entry.group.items)
            parts.append(Run(tuple(numbers), tuple(layers)))
        else:
            parts.append(layers[0])
    return parts[0] if len(parts) == 1 else tuple(parts)


def literal(found: Names) -> str:
    """The nesting as a Python expression; a run whose names differ only by number becomes a comprehension."""
    if isinstance(found, str):
        if not _SAFE.fullmatch(found):
            raise SeqspecError("SEQ304", f"a state cannot be called {found!r}")
        return f'"{found}"'
    if not isinstance(found, Run):
        return f"({', '.join(map(literal, found))})"
    patterns = [_numbered(literal(layer), number) for layer, number in zip(found.layers, found.numbers, strict=True)]
    count = len(patterns)
    period = next(p for p in range(1, count + 1) if count % p == 0 and patterns == patterns[:p] * (count // p))
    start, stop = int(found.numbers[0]), int(found.numbers[0]) + count
    if period == 1:
        return f"[{_formatted(patterns[0], 0)} for n in range({_bounds(start, stop)})]"
    if period < count:
        inner = ", ".join(_formatted(p, k) for k, p in enumerate(patterns[:period]))
        return f"[names for n in range({start}, {stop}, {period}) for names in ({inner})]"
    return f"[{', '.join(map(literal, found.layers))}]"


def _numbered(text: str, number: str) -> str:
    """`text` with a mark in place of the layer's number."""
    return re.sub(rf"\.{number}(?=[.\"])", ".\0", text)


def _formatted(pattern: str, ahead: int) -> str:
    number = f"{{n + {ahead}}}" if ahead else "{n}"
    return re.sub(r'"([^"]*\0[^"]*)"', lambda m: f'f"{m[1]}"', pattern).replace("\0", number)


def _bounds(start: int, stop: int) -> str:
    return f"{start}, {stop}" if start else str(stop)
