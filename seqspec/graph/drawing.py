"""Draws the graph for Mermaid or Graphviz: nested boxes, with repeated layers drawn once.

Stacks, blocks and sublayers are frames around their contents. Ops that only carry or prepare a value are left out, so
that a block reads as in a paper: norm, attention, add.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from seqspec.graph.dims import show
from seqspec.graph.ir import Call, Graph, Node, Param, Region, Value
from seqspec.graph.signature import output_name

# Ops that only carry or prepare a value; the picture is clearer without them.
_QUIET = frozenset({"SplitHeads", "MergeHeads", "Squeeze", "Unsqueeze", "Dropout", "ZeroPadding", "OrZeros"})
# What every layer reads besides x; these arrows would hide all others.
_SIDE = frozenset({"mask", "memory_mask", "attention_mask", "cos", "sin", "position_ids"})


@dataclass
class Box:
    """A node of the picture, or a frame around other boxes."""

    id: str
    label: str
    inside: list[Box] = field(default_factory=list)
    frame: bool = False


class _Picture:
    def __init__(self, graph: Graph) -> None:
        self.count = 0
        self.edges: dict[tuple[str, str], None] = {}
        self.root = self._box(graph.root.name, frame=True)
        env: dict[Value, str | None] = {}
        for value in graph.root.inputs:
            if value.name.removeprefix("decoder_") in _SIDE:
                env[value] = None
                continue
            box = self._box(f"{value.name} {show(value.shape)}")
            self.root.inside.append(box)
            env[value] = box.id
        self._fill(self.root, graph.root, env)
        for value in graph.root.outputs:
            box = self._box(f"{output_name(value)} {show(value.shape)}")
            self.root.inside.append(box)
            self._edge(env.get(value), box.id)

    def _box(self, label: str, *, frame: bool = False) -> Box:
        self.count += 1
        return Box(f"n{self.count}", label, frame=frame)

    def _edge(self, start: str | None, end: str) -> None:
        if start is not None:
            self.edges[start, end] = None

    def _fill(self, frame: Box, region: Region, env: dict[Value, str | None]) -> None:
        """Draws a region's items into a frame. `env` says which box a value comes from, None if not drawn."""
        for run in _runs(region.items):
            first, last = run[0], run[-1]
            if isinstance(first, Node):
                self._node(frame, first, env)
                continue
            label = first.scope if len(run) == 1 else f"{first.scope} … {last.scope.rsplit('.', 1)[-1]}   × {len(run)}"
            inner = self._box(label, frame=True)
            frame.inside.append(inner)
            given = zip(first.region.inputs, first.inputs, strict=True)
            inside = {port: env.get(v) if v is not None else None for port, v in given}
            self._fill(inner, first.region, inside)
            for out, result in zip(last.outputs, first.region.outputs, strict=True):
                env[out] = inside.get(result)

    def _node(self, frame: Box, node: Node, env: dict[Value, str | None]) -> None:
        sources = [env[v] for v in node.inputs if v is not None and not isinstance(v, Param) and env.get(v)]
        if type(node.op).__name__ == "Padding":  # the mask it makes goes everywhere
            env.update(dict.fromkeys(node.outputs))
            return
        if type(node.op).__name__ in _QUIET or (not sources and not node.op.params()):
            env.update(dict.fromkeys(node.outputs, sources[0] if sources else None))
            return
        box = self._box(_label(node))
        frame.inside.append(box)
        for source in sources:
            self._edge(source, box.id)
        env.update(dict.fromkeys(node.outputs, box.id))


def _runs(items: Sequence[Node | Call]) -> Iterator[list[Node | Call]]:
    """Items one by one, except that consecutive layers of the same region come as one list."""

    def key(pair: tuple[int, Node | Call]) -> tuple[int, ...]:
        position, item = pair
        layered = isinstance(item, Call) and item.scope.rsplit(".", 1)[-1].isdigit()
        return (-1, id(item.region)) if layered and isinstance(item, Call) else (position,)

    for _, run in groupby(enumerate(items), key):
        yield [item for _, item in run]


def _label(node: Node) -> str:
    kind = type(node.op).__name__
    what = getattr(node.op, "kind", "")
    title = f"{kind} {what}".strip()
    shape = " × ".join(str(size) for p in node.op.params()[:1] for size in p.shape)
    return " ".join(part for part in (f"{node.name}:" if node.name else "", title, shape) if part)


def mermaid(graph: Graph) -> str:
    """A Mermaid flow chart, as GitHub draws it in Markdown."""
    picture = _Picture(graph)
    lines = ["flowchart TD", *_mermaid(picture.root, "  ")]
    return "\n".join([*lines, *(f"  {a} --> {b}" for a, b in picture.edges)]) + "\n"


def _mermaid(box: Box, indent: str) -> Iterator[str]:
    label = box.label.replace('"', "#quot;")
    if not box.frame:
        yield f'{indent}{box.id}["{label}"]'
        return
    yield f'{indent}subgraph {box.id}["{label}"]'
    for inner in box.inside:
        yield from _mermaid(inner, indent + "  ")
    yield f"{indent}end"


def dot(graph: Graph) -> str:
    """A Graphviz digraph."""
    picture = _Picture(graph)
    head = ['digraph "seqspec" {', "  rankdir=TB; node [shape=box, style=rounded]; compound=true;"]
    body = [*_dot(picture.root, "  "), *(f"  {a} -> {b};" for a, b in picture.edges)]
    return "\n".join([*head, *body, "}"]) + "\n"


def _dot(box: Box, indent: str) -> Iterator[str]:
    label = box.label.replace("\\", "\\\\").replace('"', '\\"')
    if not box.frame:
        yield f'{indent}{box.id} [label="{label}"];'
        return
    yield f"{indent}subgraph cluster_{box.id} {{"
    yield f'{indent}  label="{label}";'
    for inner in box.inside:
        yield from _dot(inner, indent + "  ")
    yield f"{indent}}}"
