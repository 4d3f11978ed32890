"""What all classes of one file share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from seqspec.backends.source import names
from seqspec.diagnostics import SeqspecError
from seqspec.graph.ir import Region, Value
from seqspec.ops.base import Expr, Helper


class Line(NamedTuple):
    """A statement, its depth inside the function, and its comment."""

    depth: int
    text: str
    comment: str = ""


@dataclass(eq=False)
class Class:
    """An emitted class as its callers see it: a name, the arguments of `forward`, whether it takes `checkpoint`."""

    name: str
    arguments: Mapping[Value, str]
    checkpoint: bool = False


@dataclass(eq=False)
class File:
    """The file so far: classes by region, helpers in order of definition, and names that variables must avoid."""

    classes: dict[int, Class] = field(default_factory=dict)
    helpers: dict[str, Helper] = field(default_factory=dict)
    avoid: frozenset[str] = names.LOCAL_NAMES
    public: frozenset[str] = frozenset()
    """The model's arguments, whose names are given: a helper of the same name has another one in this file."""

    def use(self, helper: Helper) -> str:
        """Adds a helper to the file, after those it needs, and returns its name."""
        for needed in helper.needs:
            self.use(needed)
        if self.helpers.setdefault(helper.name, helper).text != helper.text:
            raise SeqspecError("SEQ304", f"two helpers are called {helper.name}")
        return self.called(helper.name)

    def called(self, helper: str) -> str:
        """The name that a helper has in this file."""
        return names.fresh(helper, self.public)

    def renamed(self, text: str) -> str:
        """Text that reads helpers under their own names, with the names that they have in this file."""
        for name in sorted(self.public & self.helpers.keys()):
            text = re.sub(rf"(?<![.\w]){name}\b", self.called(name), text)
        return text

    def arguments(self, region: Region) -> dict[Value, str]:
        """The arguments of a region's `forward`, optional ones last."""
        found: dict[Value, str] = {}
        for value in sorted(region.inputs, key=lambda v: v.optional):
            word = value.name if names.plain(value.name) else "x"
            found[value] = names.fresh(word, {*found.values(), *self.avoid})
        return found


def spread(
    order: Mapping[Value, str], given: Mapping[Value, Expr | None], past: str = "", *, keywords: bool = True
) -> Sequence[str]:
    """The arguments of a call. After an omitted one the rest are keywords; without `keywords` it is written as None."""
    texts: list[str] = []
    last = len(order) if past else max((k for k, v in enumerate(order) if given[v] is not None), default=-1)
    gap = False
    for k, (value, name) in enumerate(order.items()):
        expr = given[value]
        if expr is not None:
            texts.append(f"{name}={expr}" if gap else str(expr))
        elif keywords:
            gap = True
        elif k < last:
            texts.append("None")
    if past:
        texts.append(f"past={past}" if gap else past)
    return texts
