"""The passes of each target, in order: the one place that says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Literal

from seqspec.graph.ir import Graph
from seqspec.passes.inline import inline

Pass = Callable[[Graph], Graph]
Target = Literal["cpu", "cuda", "portable"]

PLAIN: tuple[Pass, ...] = (inline,)
PASSES: dict[Target, tuple[Pass, ...]] = {"cpu": PLAIN, "cuda": PLAIN, "portable": PLAIN}


def prepare(graph: Graph, target: Target) -> Graph:
    """The flat graph that the ONNX backend lowers for `target`."""
    return reduce(lambda g, rewrite: rewrite(g), PASSES[target], graph)
