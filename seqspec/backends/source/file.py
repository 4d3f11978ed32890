"""Writes the whole file: legend, imports, helpers, a class for each distinct region, the model last."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Set
from dataclasses import dataclass
from symtable import Symbol, SymbolTable, symtable
from typing import NamedTuple

from seqspec.backends.source import names
from seqspec.backends.source.classes import Body, ClassWriter
from seqspec.backends.source.context import Class, File
from seqspec.backends.source.past import literal, state_names
from seqspec.backends.source.plan import once_inputs
from seqspec.backends.source.root import STATE_TOOLS, Root
from seqspec.backends.source.shapes import legend
from seqspec.backends.source.wrap import statement
from seqspec.graph.ir import Call, Graph, Region
from seqspec.graph.reserved import FILE_NAMES
from seqspec.graph.signature import signature

_STANDARD = {"functools": "import functools", "math": "import math", "NamedTuple": "from typing import NamedTuple"}
_TORCH = {
    "torch": "import torch",
    "F": "import torch.nn.functional as F",
    "Tensor": "from torch import Tensor, nn",
    "checkpoint": "from torch.utils.checkpoint import checkpoint",
}
_BY_SEQSPEC = re.compile(rb'"""\w+, written by seqspec\.\r?\n')


class Source(NamedTuple):
    """An emitted file, the name of the model's class in it, and whether that class takes `checkpoint`."""

    text: str
    model: str
    checkpoint: bool


@dataclass(eq=False)
class _Kept:
    """A class of the file. Regions with equal bodies and related names share one."""

    name: str
    body: Body
    token: str


def write(graph: Graph, name: str = "", doc: str = "") -> Source:
    """The file for a graph. `name` is the model's class, the root region's name by default; `doc` the first line."""
    avoid, graph = names.LOCAL_NAMES, graph.trainable
    public = frozenset(port.python for port in signature(graph).inputs)
    while True:
        file = File(avoid=avoid, public=public)
        docstring, parts, model = _parts(graph, name, doc, file)
        scopes = list(_scopes(symtable("\n".join(parts), "<emitted>", "exec")))
        shadowed = _variables(scopes, frozenset(map(file.called, file.helpers)) - avoid)
        if not shadowed:
            # only a definition is set off from the imports by two empty lines
            gap = "\n\n" if parts[0].startswith("STATE") else "\n\n\n"
            text = "\n\n".join([docstring, *_imports(scopes)]) + gap + "\n\n\n".join(parts) + "\n"
            return Source(text, model.name, model.checkpoint)
        avoid |= shadowed  # a variable has the name of a helper: write the file again without that name


def is_ours(head: bytes) -> bool:
    """Whether a file with this beginning was written by seqspec."""
    return _BY_SEQSPEC.match(head) is not None


def modules(root: Region) -> list[Region]:
    """The regions that become classes, children before parents: the root, and every region called under a name."""
    found: dict[int, Region] = {}
    visited: set[int] = set()

    def visit(region: Region, named: bool) -> None:
        if id(region) not in visited:
            visited.add(id(region))
            for item in region.items:
                children = (item.region,) if isinstance(item, Call) else item.op.bodies()
                for child in children:
                    visit(child, bool(item.scope))
        if named:
            found.setdefault(id(region), region)

    visit(root, True)
    return list(found.values())


def _parts(graph: Graph, name: str, doc: str, file: File) -> tuple[str, list[str], Class]:
    """The docstring, everything below the imports, and the model's class."""
    root = Root(signature(graph))
    kept, letters = _classes(graph, name, root, file)
    titles = _titles(kept, file)
    *parts, last = [k.body.print(titles[k.token], titles) for k in kept]
    found = file.classes[id(graph.root)]
    model = Class(titles[found.name], found.arguments, found.checkpoint)
    state: list[str] = []
    if root.signature.states:
        nested = literal(state_names(graph.root, root.public))
        state = ["\n".join(statement(f"STATE = {nested}", 0)), *STATE_TOOLS]
    helpers = [file.renamed(h.text.strip("\n")) for h in file.helpers.values()]
    docstring = _docstring(doc or f"{model.name}, written by seqspec.", legend(letters))
    return docstring, [*helpers, *parts, *state, root.output(), last], model


def _classes(graph: Graph, name: str, root: Root, file: File) -> tuple[list[_Kept], set[str]]:
    """Every class once, under a token, since the names are known only when all are written."""
    once = once_inputs(graph)
    kept: list[_Kept] = []
    by_body: dict[Body, list[_Kept]] = {}
    letters: set[str] = set()
    for region in modules(graph.root):
        is_root = region is graph.root
        wanted = names.class_name((is_root and name) or region.name)
        written = ClassWriter(region, file, once, root if is_root else None).write()
        letters |= written.letters
        equal = by_body.setdefault(written.body, [])
        for one in equal:
            common = names.common_ending(one.name, wanted)
            if common:
                one.name = common
                break
        else:
            one = _Kept(wanted, written.body, names.token(len(kept)))
            kept.append(one)
            equal.append(one)
        file.classes[id(region)] = written.as_class(one.token)
    return kept, letters


def _titles(kept: list[_Kept], file: File) -> dict[str, str]:
    taken = {*FILE_NAMES, *map(file.called, file.helpers)}
    titles = {}
    for one in kept[-1:] + kept[:-1]:  # the model chooses first
        titles[one.token] = names.fresh(one.name, taken, "")
        taken.add(titles[one.token])
    return titles


def _docstring(first: str, sizes: str) -> str:
    # text from a spec: it must not end the docstring
    first = textwrap.fill(" ".join(first.split()).replace("\\", "/").replace('"', "'"), 110)
    text = f"{first}\n\nSizes: {sizes}.\n" if sizes else first
    return f'"""{text}"""'


def _scopes(table: SymbolTable) -> Iterator[SymbolTable]:
    yield table
    for inner in table.get_children():
        yield from _scopes(inner)


def _imports(scopes: list[SymbolTable]) -> list[str]:
    """The imports of what is read, of the standard library and of torch."""
    found = _symbols(scopes, {**_STANDARD, **_TORCH}.keys())
    read = {s.get_name() for s in found if s.is_global() and s.is_referenced()}
    blocks = ["\n".join(line for name, line in table.items() if name in read) for table in (_STANDARD, _TORCH)]
    return [block for block in blocks if block]


def _variables(scopes: list[SymbolTable], names: frozenset[str]) -> frozenset[str]:
    """Those of `names` that a function has as a variable or argument."""
    inside = _symbols([table for table in scopes if table.get_type() == "function"], names)
    return frozenset(s.get_name() for s in inside if s.is_assigned() or s.is_parameter())


def _symbols(scopes: list[SymbolTable], names: Set[str]) -> Iterator[Symbol]:
    return (table.lookup(name) for table in scopes for name in names & table.get_identifiers())
