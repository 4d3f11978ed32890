"""Shapes in comments and docstrings: one letter for each named size."""

from __future__ import annotations

from seqspec.graph.dims import (
    BATCH,
    ENCODER_TIME,
    PAST,
    TIME,
    TOTAL,
    Dim,
    Quotient,
    Shape,
    Size,
    dim,
    names,
    substitute,
)
from seqspec.graph.ir import Region, Value

_LETTERS = {BATCH: "B", TIME: "T", PAST: "P", TOTAL: "S", ENCODER_TIME: "E"}
_LEGEND = {
    "B": "batch",
    "T": "time",
    "P": "the past",
    "S": "time with the past",
    "E": "the encoder's time",
}


class Letters:
    """The letters of one class. A class with only one length calls it T, in whichever stack it is."""

    def __init__(self, region: Region) -> None:
        found: set[str] = set()
        for value in (*region.inputs, *(v for item in region.items for v in item.outputs)):
            for size in value.shape:
                found |= names(size)
        self._letters = _LETTERS if {TIME, PAST, TOTAL} & found else _LETTERS | {ENCODER_TIME: "T"}
        self.used: set[str] = set()

    def size(self, size: Size) -> str:
        """`S`, `T // 2 + 1`, `64`"""
        if isinstance(size, int):
            return str(size)
        whole = substitute(size, {PAST: dim(TOTAL) - dim(TIME)}) if names(size) >= {PAST, TIME} else size
        return self._sum(whole) if isinstance(whole, Dim) else str(whole)

    def shape(self, shape: Shape) -> str:
        """`[B, 8, T, 64]`"""
        return f"[{', '.join(map(self.size, shape))}]"

    def value(self, value: Value, name: str) -> str:
        """`x[B, T, 512]`"""
        return name + self.shape(value.shape)

    def _sum(self, size: Dim) -> str:
        text = ""
        for atoms, factor in size.terms:
            sign = " - " if factor < 0 else " + "
            parts = [str(abs(factor))] if abs(factor) != 1 or not atoms else []
            text += sign + " * ".join(parts + [self._atom(a) for a in atoms])
        return text.removeprefix(" + ").replace(" - ", "-", 1) if text.startswith(" - ") else text.removeprefix(" + ")

    def _atom(self, atom: str | Quotient) -> str:
        if isinstance(atom, str):
            letter = self._letters.get(atom, atom)
            self.used.add(letter)
            return letter
        over = f"({self.size(atom.numerator)})" if len(atom.numerator.terms) > 1 else self.size(atom.numerator)
        return f"ceil({over} / {atom.denominator})" if atom.ceil else f"({over} // {atom.denominator})"


def legend(used: set[str]) -> str:
    """`B batch, T time, S time with the past`"""
    return ", ".join(f"{letter} {meaning}" for letter, meaning in _LEGEND.items() if letter in used)
