"""The files of one spec: the outermost one, and the chain of files it extends."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from seqspec.diagnostics import Diagnostic, Report, SpecError, quoted

from . import files
from .compose import Budget, Stop, compose
from .limits import MAX_FILES
from .merging import merge
from .node import Node, mapping
from .text import check, decode


class Opened(NamedTuple):
    """A file in the chain: its real path, the folder its `extends` starts from, and its name in messages."""

    real: str
    folder: str
    shown: str


@dataclass
class Layers:
    """Reads files and merges them. Findings are collected; those that stop the reading are raised as SpecError."""

    budget: Budget
    report: Report
    sources: dict[str, str] = field(default_factory=dict)
    chain: list[Opened] = field(default_factory=list)  # outermost first

    def outermost(self, path: str) -> Node:
        """The spec at `path`, merged over what it extends. Only files in its own folder or below may be extended."""
        try:
            real = os.path.realpath(path)
            root = os.path.realpath(os.path.dirname(path) or ".")
            data = files.read(real, path)
        except files.Refused as refused:
            self.fail(Diagnostic(refused.code, refused.message, path, hint=refused.hint))
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            self.fail(Diagnostic("SEQ030", f"cannot read {quoted(path)}: {error}", path))
        self.chain.append(Opened(real, root, path))
        return self.read(data, path)

    def read(self, data: bytes, shown: str) -> Node:
        """The spec in the bytes of a file, merged over what it extends."""
        text = decode(data, shown)
        if isinstance(text, Diagnostic):
            self.fail(text)
        return self.layer(text, shown)

    def layer(self, text: str, shown: str) -> Node:
        """The spec in a text, merged over what it extends."""
        problem = check(text, shown)
        if problem is not None:
            self.fail(problem)
        self.sources[shown] = text
        try:
            root = compose(text, shown, self.budget, self.report)
        except Stop:
            self.report.raise_errors(self.sources)
            raise
        if not isinstance(root.value, dict):
            message = "a spec must be a mapping of keys to values"
            self.fail(Diagnostic("SEQ011", message, *root.place, hint="start with `seqspec: 1`"))
        extends = root.value.get("extends")
        if extends is None:
            return root
        base = self.base(extends.value)
        own = {name: entry for name, entry in root.value.items() if name != "extends"}
        return merge(base, mapping(own, like=root))

    def base(self, written: Node) -> Node:
        """The document that an `extends` names."""
        path = written.value
        if not isinstance(path, str):
            self.refuse(written, files.Refused("SEQ032", "`extends` must be the path of one file"))
        if not self.chain:
            message = "`extends` needs a spec that is a file"
            self.refuse(written, files.Refused("SEQ036", message, "save this spec to a file"))
        outermost, here = self.chain[0], self.chain[-1]
        shown = os.path.normpath(os.path.join(os.path.dirname(here.shown), path))
        try:
            real = files.find(path, here.folder, outermost.folder)
            self.check_chain(real, shown)
            data = files.read(real, path)
        except files.Refused as refused:
            self.refuse(written, refused)
        self.chain.append(Opened(real, os.path.dirname(real), shown))
        return self.read(data, shown)

    def check_chain(self, real: str, shown: str) -> None:
        """Refuses a file that would close a circle or make the chain too long."""
        circle = [opened.real for opened in self.chain]
        if real in circle:
            names = [opened.shown for opened in self.chain[circle.index(real) :]]
            arrows = " -> ".join([*names, names[0]])
            raise files.Refused("SEQ034", f"files extend each other in a circle: {arrows}")
        if len(self.chain) >= MAX_FILES:
            raise files.Refused("SEQ035", f"more than {MAX_FILES} files extend each other")

    def refuse(self, at: Node, refused: files.Refused) -> NoReturn:
        self.fail(Diagnostic(refused.code, refused.message, *at.place, path="extends", hint=refused.hint))

    def fail(self, diagnostic: Diagnostic) -> NoReturn:
        self.report.add(diagnostic)
        raise SpecError(tuple(self.report), self.sources, self.report.hidden)
