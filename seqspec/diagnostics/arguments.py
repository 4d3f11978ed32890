"""Checks of the arguments callers pass: a wrong one raises SEQ417 while compiling, SEQ517 while running.

Every message names the argument, what it takes and what was given. Nothing is converted silently.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from .errors import CompileError, RuntimeFault, SeqspecError
from .escape import quoted
from .suggest import did_you_mean

Code = Literal["SEQ417", "SEQ517"]
COMPILING: Code = "SEQ417"
RUNNING: Code = "SEQ517"


def refused(name: str, takes: str, value: object, hint: str | None = None, *, code: Code = COMPILING) -> SeqspecError:
    """The error for the caller to raise: "`name` takes …, not …"."""
    kind = CompileError if code == COMPILING else RuntimeFault
    return kind(code, f"`{name}` takes {takes}, not {given(value)}", hint)


def given(value: object) -> str:
    """A value as a sentence shows it: short plain values as they are, anything else by its type."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int | float) and abs(value) < 1e15:
        return f"{type(value).__name__} {value}"
    return f"a value of type {quoted(type(value).__name__)}"


def path(value: Any, name: str = "path", *, code: Code = COMPILING) -> Path:
    """The path that a string or an `os.PathLike` names."""
    plain = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(plain, str):
        raise refused(name, "a path, as text or a `pathlib.Path`", plain, code=code)
    if not plain or not _can_be_a_path(plain):
        raise refused(name, "a path that a file can have", plain, code=code)
    return Path(plain)


def word(value: object, name: str, known: Iterable[str], *, code: Code = COMPILING) -> None:
    """Refuses what is not one of the known words."""
    words = list(known)
    if not isinstance(value, str) or value not in words:
        hint = did_you_mean(value, words) if isinstance(value, str) else None
        raise refused(name, f"one of {', '.join(map(quoted, words))}", value, hint, code=code)


def whole(value: object, name: str, *, least: int = 0, code: Code = COMPILING) -> None:
    """Refuses what is not a whole number of at least `least`. NumPy integers pass, booleans do not."""
    try:
        fits = not isinstance(value, bool) and operator.index(value) >= least  # type: ignore[arg-type]
    except TypeError:
        fits = False
    if not fits:
        raise refused(name, f"a whole number, {least} or more", value, code=code)


def texts(value: object, name: str, what: str) -> None:
    """Refuses what is not a list or tuple of strings. A single string is not read as a list of its characters."""
    if not isinstance(value, list | tuple):
        raise refused(name, f"a list of {what}", value)
    for item in value:
        if not isinstance(item, str):
            raise refused(name, f"a list of {what}", item)


def flag(value: object, name: str) -> None:
    """Refuses what is not True or False."""
    if not isinstance(value, bool):
        raise refused(name, "True or False", value)


def _can_be_a_path(text: str) -> bool:
    try:
        return "\0" not in text and bool(os.fsencode(text))
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
