"""The passes of each target, in order: the one place that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Literal

from seqspec.graph.ir import Graph
from seqspec.passes.bind import bind
from seqspec.passes.drop_dead import drop_dead
from seqspec.passes.drop_dropout import drop_dropout
from seqspec.passes.fuse_skip_norm import fuse_skip_norm
from seqspec.passes.inline import inline
from seqspec.passes.split import split

Pass = Callable[[Graph], Graph]
Target = Literal["cpu", "cuda", "portable"]

INFERENCE: tuple[Pass, ...] = (inline, drop_dropout, bind, drop_dead)
FUSIONS: dict[Target, tuple[Pass, ...]] = {"cpu": (fuse_skip_norm,), "cuda": (fuse_skip_norm,), "portable": ()}


def run(graph: Graph, passes: Iterable[Pass]) -> Graph:
    """`graph` through each pass."""
    return reduce(lambda g, rewrite: rewrite(g), passes, graph)


def whole(graph: Graph, target: Target) -> Graph:
    """The flat graph for ONNX, in one piece."""
    return run(graph, (*INFERENCE, *FUSIONS[target]))


def roles(graph: Graph, target: Target) -> dict[str, Graph]:
    """The flat graph of each file: `model`, or `encoder` and `decoder` where inputs are read on the first call only."""
    flat = run(graph, INFERENCE)
    parts = dict(zip(("encoder", "decoder"), split(flat), strict=True)) if flat.once else {"model": flat}
    return {role: run(part, FUSIONS[target]) for role, part in parts.items()}
