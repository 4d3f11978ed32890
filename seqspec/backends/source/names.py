"""Which names the emitted file may use. Names come from validated identifiers; this is a second check of them."""

from __future__ import annotations

import builtins
import re
from collections.abc import Container, Mapping
from keyword import iskeyword

from seqspec.diagnostics import SeqspecError
from seqspec.graph.reserved import FILE_NAMES, MODULE_ATTRIBUTES, usable

_CONTAINER = "append clear extend insert items keys pop update values"
_UNUSED_BUILTINS = frozenset(dir(builtins)) - {"range", "zip"}

CONTAINER_ATTRIBUTES = MODULE_ATTRIBUTES | frozenset(_CONTAINER.split())

LOCAL_NAMES = FILE_NAMES | {"self", "past", "state"} | frozenset(dir(builtins))
"""Names that no variable of a function may take."""


def plain(name: str) -> bool:
    """Whether `name` is an ASCII identifier and not a keyword."""
    return name.isascii() and name.isidentifier() and not iskeyword(name)


def attribute(name: str, taken: Container[str] = MODULE_ATTRIBUTES) -> str:
    """`name`, checked as an attribute of a module and part of parameter names. SeqspecError if it cannot be one."""
    if not plain(name) or name in taken or not usable(name):
        raise SeqspecError("SEQ304", f"a part cannot be called {name!r} in PyTorch", "choose another `name`")
    return name


def argument(name: str, avoid: Container[str]) -> str:
    """`name`, checked as an argument of the model. SeqspecError if it cannot be one."""
    if not plain(name) or (name in avoid and name not in _UNUSED_BUILTINS):
        raise SeqspecError("SEQ304", f"an input cannot be called {name!r} in PyTorch", "choose another name")
    return name


def class_name(name: str) -> str:
    """A class name made of the letters and digits in `name`."""
    if not plain(name):
        words = re.findall(r"[A-Za-z0-9]+", name)
        name = "".join(w[:1].upper() + w[1:] for w in words)
    return name if plain(name) else f"Model{name}" if plain(f"Model{name}") else "Model"


def snake(name: str) -> str:
    """`LearnedPositions` -> `learned_positions`"""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def fresh(name: str, taken: Container[str], separator: str = "_") -> str:
    """`name`, or name_2, name_3 … if it is taken."""
    if name not in taken:
        return name
    number = 2
    while f"{name}{separator}{number}" in taken:
        number += 1
    return f"{name}{separator}{number}"


def path(name: str) -> str:
    """`decoder.layers.3.weight` -> `decoder.layers[3].weight`"""
    parts = name.split(".")
    text = ""
    for part in parts:
        text += f"[{int(part)}]" if part.isdecimal() else f".{attribute(part)}"
    return text.removeprefix(".")


def token(number: int) -> str:
    """A placeholder for a class until its name is known."""
    return f"\0{number}\0"


def replace_tokens(text: str, titles: Mapping[str, str]) -> str:
    """`text` with class names in place of tokens."""
    return re.sub("\0\\d+\0", lambda match: titles[match[0]], text) if "\0" in text else text


def common_ending(first: str, second: str) -> str:
    """The words that two names end with: `FeedForward` for `LocalFeedForward` and `GlobalFeedForward`."""
    one, two = (re.findall(r"[A-Z][a-z]*|[a-z]+|\d+", name) for name in (first, second))
    common: list[str] = []
    while one and two and one[-1] == two[-1]:
        common.insert(0, one.pop())
        two.pop()
    return "".join(common) if common and plain("".join(common)) else ""
