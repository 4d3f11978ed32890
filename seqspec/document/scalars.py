"""Resolves plain scalars by the YAML 1.2 core schema.

`no`, `on`, `12:30`, `1_000`, `0b11` and `2024-01-01` are text, `010` is ten, `0o10` is eight,
`1e-5` is a float. A number that cannot be represented as written raises `NumberRange`.
"""

from __future__ import annotations

import math
import re
from typing import Final

from .limits import MAX_NUMBER

Scalar = str | int | float | bool


class Null:
    """The value of `null`, `~` and an empty scalar; never part of a document."""


NULL: Final = Null()


class NumberRange(ValueError):
    """A number is too long, or would silently turn into infinity or zero."""


_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NUMBER_START = frozenset("0123456789+-.")

_WORDS: dict[str, bool | float | Null] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), NULL),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}


def resolve(text: str) -> Scalar | Null:
    """The value of a plain (unquoted) scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _DECIMAL.fullmatch(text):
        return int(_short(text))
    if _FLOAT.fullmatch(text):
        return _float(_short(text))
    if _OCTAL.fullmatch(text):
        return int(_short(text)[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(_short(text)[2:], 16)
    return text


def _short(text: str) -> str:
    if len(text) > MAX_NUMBER:
        raise NumberRange(f"a number of {len(text)} characters is longer than {MAX_NUMBER}")
    return text


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NumberRange("the number is too large for a 64-bit float")
    if value == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        raise NumberRange("the number is too small for a 64-bit float and would become 0")
    return value
