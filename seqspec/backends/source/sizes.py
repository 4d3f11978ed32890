"""Expressions for sizes at run time, read off an argument, another variable or the past."""

from __future__ import annotations

from collections.abc import Container, Sequence

from seqspec.backends.source.context import Line
from seqspec.backends.source.past import find
from seqspec.backends.source.plan import Plan
from seqspec.backends.source.variables import Variables
from seqspec.diagnostics import SeqspecError
from seqspec.graph.dims import PAST, Dim, Quotient, Size, dim, names
from seqspec.graph.ir import Value
from seqspec.ops.base import Expr


class Sizes:
    """`pasts` are the variables of the entries of the past; `header` collects lines for the top of the function."""

    def __init__(self, plan: Plan, variables: Variables, pasts: Sequence[str]) -> None:
        self._plan, self._variables, self._pasts = plan, variables, pasts
        self._read: dict[Size, str] = {}
        self.header: list[Line] = []

    def write(self, size: Size, unsure: Container[Value]) -> Expr:
        """`x.shape[1]`, `past_length + x.shape[1]`, `64`; `unsure` values may be None at this place."""
        if isinstance(size, int):
            return Expr(str(size))
        found = self._measured(size, unsure) or self._from_past(size)
        if found:
            return Expr(found)
        if any(size == dim(name) for name in names(size)):
            raise SeqspecError("SEQ304", f"{self._plan.region.name} cannot read the size {size} off anything")
        return Expr.infix(" + ".join(self._product(atoms, factor, unsure) for atoms, factor in size.terms))

    def _product(self, atoms: tuple[str | Quotient, ...], factor: int, unsure: Container[Value]) -> str:
        parts = [str(factor)] if factor != 1 or not atoms else []
        for atom in atoms:
            if isinstance(atom, str):
                parts.append(self.write(dim(atom), unsure).tight)
            else:
                over = self.write(atom.numerator, unsure).tight
                # -(-a // b) rounds up
                parts.append(f"-(-{over} // {atom.denominator})" if atom.ceil else f"({over} // {atom.denominator})")
        return " * ".join(parts)

    def _measured(self, size: Dim, unsure: Container[Value]) -> str:
        if size == dim(PAST):
            return ""
        for value in (*self._plan.region.inputs, *self._variables.current()):
            if size in value.shape and not value.optional and value not in unsure and self._variables.holds(value):
                return f"{self._variables.names[value]}.shape[{value.shape.index(size)}]"
        return ""

    def _from_past(self, size: Dim) -> str:
        if size not in self._read:
            found = find(self._plan.entries, size)
            if found is None:
                return ""
            name = self._variables.reserve("past_length" if size == dim(PAST) else "length")
            self._read[size] = name
            entry, path, axis = found
            self.header.append(Line(0, f"{name} = 0 if past is None else {self._pasts[entry]}{path}.shape[{axis}]"))
        return self._read[size]
