"""Loads text as a Python module. This is the only `exec` of the project: the text comes from `backends.source`, never
from a user.

The module is named after a hash of its text and registered in `sys.modules` and `linecache`, so that tracebacks and
`inspect.getsource` show it. Instances of its classes pickle together with the text, so that they load in a process that
has never seen it.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from hashlib import sha256
from types import ModuleType
from typing import Any


def load(text: str) -> ModuleType:
    """The module of an emitted file; the same object for the same text."""
    name = f"seqspec_model_{sha256(text.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = filename = f"<{name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    sys.modules[name] = module
    try:
        exec(compile(text, filename, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == name:
            value.__reduce_ex__ = _reduce(text)  # type: ignore[method-assign, assignment]
    return module


def rebuild(text: str, kind: str, *args: Any) -> Any:
    """An empty instance of a class of the emitted file; pickles call this."""
    cls = getattr(load(text), kind)
    return cls.__new__(cls, *args)


def _reduce(text: str) -> Callable[[Any, int], tuple[Any, ...]]:
    def reduce(self: Any, protocol: int) -> tuple[Any, ...]:
        # as pickle does by default, except for how the empty instance is made
        made: Any = object.__reduce_ex__(self, 2)
        return (rebuild, (text, type(self).__name__, *made[1][1:]), *made[2:])

    return reduce
