"""Sizes: integers, or integer polynomials in named sizes with floor and ceiling division, in a normal form.

`==` compares normal forms. Shape rules rely on it: sizes that it cannot prove equal are an error there, never assumed
to be equal.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import reduce
from math import prod
from operator import mul

from seqspec.graph.data import Data, primitive

BATCH = "batch_size"
TIME = "sequence_length"
PAST = "past_sequence_length"
TOTAL = "total_sequence_length"
ENCODER_TIME = "encoder_sequence_length"
LABELS = "label_length"
_PAST_WINDOW, _TOTAL_WINDOW, _LENGTH = "past_window_", "total_window_", "_length"


@primitive
class Quotient(Data):
    """numerator / denominator, rounded down, or up where `ceil`."""

    numerator: Dim
    denominator: int
    ceil: bool = False

    def __str__(self) -> str:
        return f"{'ceil' if self.ceil else 'floor'}(({self.numerator}) / {self.denominator})"


Atom = str | Quotient
Monomial = tuple[Atom, ...]


@primitive
class Dim(Data):
    """A sorted sum of coefficient · product of atoms. A bare constant is an `int`, never a `Dim`."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Size) -> Size:
        return _collect([*self.terms, *_terms(other)])

    __radd__ = __add__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    def __rsub__(self, other: Size) -> Size:
        return self * -1 + other

    def __mul__(self, other: Size) -> Size:
        products = [(a + b, x * y) for a, x in self.terms for b, y in _terms(other)]
        return _collect(products)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Size:
        return _divide(self, divisor, ceil=False)

    def __str__(self) -> str:
        return " + ".join(_show(atoms, factor) for atoms, factor in self.terms)

    __repr__ = __str__


Size = int | Dim
Shape = tuple[Size, ...]


def dim(name: str) -> Dim:
    """The size called `name`."""
    return Dim((((name,), 1),))


def ceil_div(size: Size, divisor: int) -> Size:
    """size / divisor, rounded up."""
    return -(-size // divisor) if isinstance(size, int) else _divide(size, divisor, ceil=True)


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """`size` with the named sizes replaced; an `int` once every name is given a number."""
    if isinstance(size, int):
        return size
    total: Size = 0
    for atoms, factor in size.terms:
        total = total + reduce(mul, (_replace(atom, values) for atom in atoms), factor)
    return total


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The number that `size` comes to. KeyError names the sizes that `values` lacks."""
    if isinstance(size, int):
        return size
    try:
        return sum(factor * prod(_number(atom, values) for atom in atoms) for atoms, factor in size.terms)
    except KeyError:
        raise KeyError(f"no value for {', '.join(sorted(names(size) - values.keys()))}") from None


def past_window(size: int) -> str:
    """The length of the past that a layer keeps whose window has `size` tokens."""
    return f"{_PAST_WINDOW}{size}{_LENGTH}"


def total_window(size: int) -> str:
    """The length of what it keeps once the new tokens have joined."""
    return f"{_TOTAL_WINDOW}{size}{_LENGTH}"


def windows(shape: Shape) -> dict[str, int]:
    """The lengths in `shape` that are `past_window` of a size, and these sizes."""
    found = {name: name.removeprefix(_PAST_WINDOW).removesuffix(_LENGTH) for size in shape for name in names(size)}
    return {name: int(text) for name, text in found.items() if text.isdecimal() and past_window(int(text)) == name}


def grown(shape: Shape) -> Shape:
    """The shape of a present, from that of its past: P past positions become P + T; of a window, what is kept."""
    kept = {name: dim(total_window(size)) for name, size in windows(shape).items()}
    return tuple(substitute(size, {PAST: dim(PAST) + dim(TIME), **kept}) for size in shape)


def names(size: Size) -> set[str]:
    """The named sizes in `size`."""
    if isinstance(size, int):
        return set()
    found: set[str] = set()
    for atoms, _ in size.terms:
        for atom in atoms:
            found |= {atom} if isinstance(atom, str) else names(atom.numerator)
    return found


def parse(text: str) -> Size:
    """The size that prints as `text`. ValueError if there is none."""
    return _size(ast.parse(text, mode="eval").body)


def show(shape: Shape) -> str:
    """A shape as text: `[batch_size, 8, 64]`."""
    return f"[{', '.join(map(str, shape))}]"


def _size(tree: ast.expr) -> Size:
    match tree:
        case ast.Constant(int(number)):
            return number
        case ast.Name(name):
            return dim(name)
        case ast.UnaryOp(ast.USub(), operand):
            return _size(operand) * -1
        case ast.BinOp(left, ast.Add(), right):
            return _size(left) + _size(right)
        case ast.BinOp(left, ast.Mult(), right):
            return _size(left) * _size(right)
        case ast.Call(ast.Name("floor"), [ast.BinOp(left, ast.Div(), ast.Constant(int(divisor)))]):
            return _size(left) // divisor
        case ast.Call(ast.Name("ceil"), [ast.BinOp(left, ast.Div(), ast.Constant(int(divisor)))]):
            return ceil_div(_size(left), divisor)
    raise ValueError(f"{ast.unparse(tree)} is no size")


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return (((), size),) if isinstance(size, int) else size.terms


def _collect(terms: list[tuple[Monomial, int]]) -> Size:
    sums: dict[Monomial, int] = {}
    for atoms, factor in terms:
        key = tuple(sorted(atoms, key=str))
        sums[key] = sums.get(key, 0) + factor
    # highest degree first and constants last, as people write polynomials
    kept = sorted(((a, f) for a, f in sums.items() if f), key=lambda t: (-len(t[0]), str(t[0])))
    if not kept:
        return 0
    return kept[0][1] if kept[0][0] == () else Dim(tuple(kept))


def _divide(size: Dim, divisor: int, *, ceil: bool) -> Size:
    if divisor <= 0:
        raise ZeroDivisionError(f"a size is divided by {divisor}")
    whole = [(a, f // divisor) for a, f in size.terms if f % divisor == 0]
    rest = _collect([(a, f) for a, f in size.terms if f % divisor])
    if isinstance(rest, int):
        rounded: Size = -(-rest // divisor) if ceil else rest // divisor
    else:
        rounded = Dim((((Quotient(rest, divisor, ceil),), 1),))
    return _collect(whole) + rounded


def _replace(atom: Atom, values: Mapping[str, Size]) -> Size:
    if isinstance(atom, str):
        return values.get(atom, dim(atom))
    numerator = substitute(atom.numerator, values)
    return ceil_div(numerator, atom.denominator) if atom.ceil else numerator // atom.denominator


def _number(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, str):
        return values[atom]
    numerator = evaluate(atom.numerator, values)
    return -(-numerator // atom.denominator) if atom.ceil else numerator // atom.denominator


def _show(atoms: Monomial, factor: int) -> str:
    parts = ([str(factor)] if factor != 1 or not atoms else []) + [str(a) for a in atoms]
    return "*".join(parts)
