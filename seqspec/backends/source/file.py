"""The whole file: legend, imports, helpers, a class for each distinct region, the model last."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from seqspec.backends.source import names
from seqspec.backends.source.classes import ClassWriter, Written
from seqspec.backends.source.forward import Class, File
from seqspec.backends.source.past import literal, state_names
from seqspec.backends.source.plan import once_inputs
from seqspec.backends.source.root import STATE_TOOLS, Root
from seqspec.backends.source.shapes import legend
from seqspec.backends.source.wrap import statement
from seqspec.graph.ir import Call, Graph, Region
from seqspec.graph.signature import signature

_IMPORTS = (
    ("functools", "import functools"),
    ("math", "import math"),
    ("NamedTuple", "from typing import NamedTuple"),
    ("torch", "import torch"),
    ("F", "import torch.nn.functional as F"),
    ("Tensor", "from torch import Tensor"),
    ("nn", "from torch import nn"),
    ("checkpoint", "from torch.utils.checkpoint import checkpoint"),
)


@dataclass(frozen=True)
class Source:
    """An emitted file, the class in it that is the model, and whether that takes `checkpoint`."""

    text: str
    model: str
    checkpoint: bool


def write(graph: Graph, name: str = "", doc: str = "") -> Source:
    """The file for a graph. `name` is the model's class, the root region's name by default; `doc` the file's first line."""
    avoid: frozenset[str] = names.LOCAL_NAMES
    while True:
        file = File(avoid=avoid)
        parts, model = _parts(graph, name, doc, file)
        shadowed = frozenset(file.helpers) - avoid
        if not shadowed or not _assigned("\n".join(parts)) & shadowed:
            return Source(parts[0] + "\n\n" + "\n\n\n".join(parts[1:]) + "\n", model.name, model.checkpoint)
        avoid |= shadowed  # a variable took the name of a helper: once more, without those


def _parts(graph: Graph, name: str, doc: str, file: File) -> tuple[list[str], Class]:
    once = once_inputs(graph)
    written: dict[tuple[object, ...], Written] = {}
    used: set[str] = set()
    taken = set(names.FILE_NAMES)
    root = Root(signature(graph))
    for region in modules(graph.root):
        is_root = region is graph.root
        writer = ClassWriter(region, file, once, root if is_root else None)
        wanted = names.class_name((is_root and name) or region.name)
        result = writer.write()
        key = (wanted, result.key)
        if key not in written:
            title = names.fresh(wanted, taken | set(file.helpers), "")
            taken.add(title)
            written[key] = result
            result.title = title
            used |= result.letters
        file.classes[id(region)] = result.as_class(written[key].title)
    model = file.classes[id(graph.root)]
    classes = [w.text() for w in written.values()]
    helpers = [h.text.strip("\n") for h in file.helpers.values()]
    state = []
    if root.signature.states:
        state = ["\n".join(statement(f"STATE = {literal(state_names(graph.root, root.public))}", 0)), *STATE_TOOLS]
    body = [*helpers, *classes[:-1], *state, root.output(), classes[-1]]
    return [_head(doc or f"{model.name}: one PyTorch file, written by seqspec.", legend(used), body), *body], model


def modules(root: Region) -> list[Region]:
    """The regions that become classes, children before parents: the root and what has a name of its own."""
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


def _head(doc: str, sizes: str, body: list[str]) -> str:
    """The docstring and the imports that the body uses."""
    tree = ast.parse("\n\n\n".join(body))
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    lines = [line for name, line in _IMPORTS if name in read]
    if {"Tensor", "nn"} <= read:
        lines = [line for line in lines if line != "from torch import nn"]
        lines[lines.index("from torch import Tensor")] = "from torch import Tensor, nn"
    plain = [line for line in lines if line.startswith("import") and "torch" not in line or "typing" in line]
    torch = [line for line in lines if line not in plain]
    text = f"{doc}\n\nSizes: {sizes}.\n" if sizes else doc
    blocks = ["\n".join(block) for block in (plain, torch) if block]
    return f'"""{text}"""\n\n' + "\n\n".join(blocks)


def _assigned(text: str) -> set[str]:
    tree = ast.parse(text)
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}


__all__ = ["Source", "modules", "write"]
