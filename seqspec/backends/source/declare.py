"""Writes `__init__`: the modules and parameters of one class, under the names that the state dict must have."""

from __future__ import annotations

from typing import TypeAlias

from seqspec.backends.source.names import CONTAINER_ATTRIBUTES, attribute
from seqspec.diagnostics import SeqspecError
from seqspec.graph.dims import Shape
from seqspec.graph.ir import Init, Param
from seqspec.graph.reserved import MODULE_ATTRIBUTES
from seqspec.ops.base import Op

Tree: TypeAlias = "dict[str, str | Tree]"


class Declarations:
    """Constructor texts by dotted path; `layers.0`, `layers.1` … become a ModuleList, other dots a ModuleDict."""

    def __init__(self) -> None:
        self._tree: Tree = {}

    def module(self, scope: str, constructor: str, shared: bool = False) -> None:
        """Declares a submodule called `scope`. If it is `shared`, an equal one may be declared already."""
        if not (shared and self._find(scope) == constructor):
            self._add(scope.split("."), constructor)

    def params(self, name: str, op: Op) -> None:
        """Declares the parameters of an op without a module, by their own names, below the node's if it has one."""
        for param in op.params():
            self._add([*([name] if name else []), *param.name.split(".")], parameter(param))

    @property
    def names(self) -> set[str]:
        """The attributes taken so far."""
        return set(self._tree)

    def lines(self) -> list[str]:
        """One statement for each attribute."""
        return [f"self.{attribute(name)} = {_construct(what)}" for name, what in self._tree.items()]

    def _find(self, scope: str) -> str | Tree | None:
        here: str | Tree | None = self._tree
        for part in scope.split("."):
            here = here.get(part) if isinstance(here, dict) else None
        return here

    def _add(self, parts: list[str], constructor: str) -> None:
        here = self._tree
        for part in parts[:-1]:
            inner = here.setdefault(part, {})
            if isinstance(inner, str):
                raise _clash(parts)
            here = inner
        if parts[-1] in here:
            raise _clash(parts)
        here[parts[-1]] = constructor


def parameter(param: Param) -> str:
    """The constructor of a parameter with its initialisation, so that the file works on its own."""
    return f"nn.Parameter({_start(param.init, param.shape)})"


def _start(init: Init, shape: Shape) -> str:
    sizes = ", ".join(map(str, shape))
    match init.kind:
        case "zeros" | "ones":
            return f"torch.{init.kind}({sizes})"
        case "constant":
            return f"torch.full(({sizes},), {init.args[0]!r})"
        case "normal":
            return f"torch.randn({sizes}) * {init.args[0]!r}"
        case "uniform":
            return f"torch.empty({sizes}).uniform_(-{init.args[0]!r}, {init.args[0]!r})"
        case "blocks":
            part = (shape[0] // len(init.args), *shape[1:])
            return f"torch.cat([{', '.join(_start(i, part) for i in init.args if isinstance(i, Init))}])"


def _construct(what: str | Tree) -> str:
    if isinstance(what, str):
        return what
    if all(name.isdecimal() for name in what):
        return _module_list(what)
    texts = {name: _construct(inner) for name, inner in what.items()}
    parameters = all(text.startswith("nn.Parameter(") for text in texts.values())
    taken = MODULE_ATTRIBUTES if parameters else CONTAINER_ATTRIBUTES
    items = ", ".join(f'"{attribute(name, taken)}": {text}' for name, text in texts.items())
    return f"nn.Parameter{'Dict'}({{{items}}})" if parameters else f"nn.ModuleDict({{{items}}})"


def _module_list(what: Tree) -> str:
    if [int(name) for name in what] != list(range(len(what))):
        raise SeqspecError("SEQ304", f"layers are numbered {', '.join(what)} instead of 0, 1, 2, …")
    texts = [_construct(inner) for inner in what.values()]
    count = len(texts)
    if count > 1 and len(set(texts)) == 1:
        return f"nn.ModuleList({texts[0]} for _ in range({count}))"
    if not all(text.endswith("()") for text in texts) or count == 1:
        return f"nn.ModuleList([{', '.join(texts)}])"
    kinds = [text.removesuffix("()") for text in texts]
    period = next(p for p in range(1, count + 1) if count % p == 0 and kinds == kinds[:p] * (count // p))
    if period < count:
        return f"nn.ModuleList(kind() for kind in [{', '.join(kinds[:period])}] * {count // period})"
    return f"nn.ModuleList(kind() for kind in [{', '.join(_run_lengths(kinds))}])"


def _run_lengths(kinds: list[str]) -> list[str]:
    """[A, B, B, B] -> A, *[B] * 3"""
    found: list[tuple[str, int]] = []
    for kind in kinds:
        if found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1] + 1)
        else:
            found.append((kind, 1))
    return [text for kind, n in found for text in ([kind] * n if n < 3 else [f"*[{kind}] * {n}"])]


def _clash(parts: list[str]) -> SeqspecError:
    return SeqspecError("SEQ304", f"two parts are called {'.'.join(parts)}")
