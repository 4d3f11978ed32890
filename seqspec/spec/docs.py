"""Reads the docstrings of components and of their fields from the source, for the schema and the reference page."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise

from seqspec.spec.fields import Kind


def of_class(cls: Kind) -> str:
    """The docstring of a kind."""
    return inspect.cleandoc(cls.__doc__ or "")


def of_field(cls: Kind, name: str) -> str:
    """The text under a field, in its class or the nearest base class that has one."""
    for owner in cls.__mro__:
        found = _of_module(owner.__module__).get(owner.__name__, {}).get(name)
        if found is not None:
            return found
    return ""


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    """The texts of a module's classes: class -> field -> text."""
    module = sys.modules[name]
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):  # built in, or without source: such classes hold no fields of ours
        return {}
    return {node.name: _of_body(node.body) for node in tree.body if isinstance(node, ast.ClassDef)}


def _of_body(body: list[ast.stmt]) -> dict[str, str]:
    texts = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            value = below.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                texts[field.target.id] = inspect.cleandoc(value.value)
    return texts
