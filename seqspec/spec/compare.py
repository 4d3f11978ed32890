"""The differences between two specs, path by path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from seqspec.diagnostics import format_path
from seqspec.document import Path
from seqspec.document.dump import flow

_ABSENT = object()


class Change(NamedTuple):
    """A value that was added, removed or changed."""

    path: Path
    before: Any
    after: Any

    def __str__(self) -> str:
        name = format_path(self.path)
        if self.before is _ABSENT:
            return f"+ {name}: {flow(self.after)}"
        if self.after is _ABSENT:
            return f"- {name}: {flow(self.before)}"
        return f"~ {name}: {flow(self.before)} -> {flow(self.after)}"


def changes(before: Any, after: Any, path: Path = ()) -> Iterator[Change]:
    """The smallest parts that differ. Mappings whose `kind` differs count as one part."""
    if isinstance(before, dict) and isinstance(after, dict) and before.get("kind") == after.get("kind"):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from changes(before.get(key, _ABSENT), after.get(key, _ABSENT), (*path, key))
    elif isinstance(before, list) and isinstance(after, list):
        for n in range(max(len(before), len(after))):
            pair = (before[n] if n < len(before) else _ABSENT, after[n] if n < len(after) else _ABSENT)
            yield from changes(*pair, (*path, n))
    elif before != after or isinstance(before, bool) != isinstance(after, bool):
        yield Change(path, before, after)
