"""The passes of each target in order. No other module orders passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce

from seqspec.graph.ir import Graph
from seqspec.passes.bind import bind
from seqspec.passes.drop_dead import drop_dead
from seqspec.passes.drop_dropout import drop_dropout
from seqspec.passes.forms import Target
from seqspec.passes.fuse_attention import fuse_attention
from seqspec.passes.fuse_skip_norm import fuse_skip_norm
from seqspec.passes.hoist import hoist
from seqspec.passes.initial import learned
from seqspec.passes.inline import inline
from seqspec.passes.last_logits import last_logits
from seqspec.passes.options import Logits, Quantize
from seqspec.passes.quantize import quantize
from seqspec.passes.scan_recurrent import scan_recurrent
from seqspec.passes.split import split
from seqspec.passes.trim import trim
from seqspec.passes.window_caches import window_caches

Pass = Callable[[Graph], Graph]

_INFERENCE: tuple[Pass, ...] = (inline, drop_dropout, bind, drop_dead)


def inference(graph: Graph, logits: Logits = "all") -> Graph:
    """The flat graph for ONNX, in one piece."""
    flat = _run(graph, _INFERENCE)
    return last_logits(flat) if logits == "last" else flat


def parts(flat: Graph) -> dict[str, Graph]:
    """The graph of each file: `model`, or `encoder` and `decoder` if some inputs are read on the first call only.

    If states of a single model start from learned values, `initial` computes the first past, for the batch of an input.
    """
    if flat.once:
        return dict(zip(("encoder", "decoder"), split(flat), strict=True))
    return dict(zip(("initial", "model"), split(flat), strict=True)) if learned(flat.root) else {"model": flat}


def fused(flat: Graph, target: Target, dtype: str = "float32", bits: Quantize | None = None) -> Graph:
    """The graph with the kernels that `target` has for this dtype, and with quantized weights if `bits` asks for it."""
    scanned = scan_recurrent(hoist(trim(flat)), target, dtype)
    joined = fuse_skip_norm(fuse_attention(scanned, target, dtype), target, dtype)
    return joined if bits is None else quantize(joined, target, dtype, bits)


def windowed(files: Mapping[str, Graph]) -> dict[str, Graph]:
    """The graphs of `fused` as they are written: where no kernel keeps a cache, a window layer keeps its window."""
    return {role: window_caches(graph) for role, graph in files.items()}


def rounded(graph: Graph, target: Target, dtype: str, bits: Quantize) -> Graph:
    """The whole flat model with the weights rounded as in `fused`: what quantized files should compute."""
    return quantize(drop_dropout(inline(graph)), target, dtype, bits)


def _run(graph: Graph, passes: Iterable[Pass]) -> Graph:
    return reduce(lambda g, rewrite: rewrite(g), passes, graph)
