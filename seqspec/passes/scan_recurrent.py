"""Writes recurrent layers as a Scan over time where that is faster than ONNX's op, or the only way.

On a CPU onnxruntime's ops save little where rows are short, and its plain RNN is slow by itself. On CUDA a layer that
its provider has no kernel for would be computed by the CPU. See `ops.recurrent_scan` for the two kinds of Scan.
"""

from __future__ import annotations

from dataclasses import replace

from seqspec.graph.ir import Graph, Node
from seqspec.ops.recurrent import Recurrent
from seqspec.ops.scanned import Scanned
from seqspec.passes.forms import Form, Limit, Target
from seqspec.passes.options import DTYPES
from seqspec.passes.rewrite import nodes, with_items

PACKED = Form(
    "a recurrent layer",
    ("Scan",),
    {"cpu": DTYPES, "portable": DTYPES},
    "GRU or LSTM",
    condition="something is padded; of an RNN, and of an LSTM that projects its output, always",
)
STEPPED = Form(
    "a recurrent layer that the CUDA provider has no kernel for",
    ("Scan",),
    {"cuda": ("float32", "float16")},
    "RNN, GRU or LSTM",
    (
        Limit(
            "it is an RNN whose `activation` is not tanh, a GRU with `reset: before`, or an LSTM with peepholes or a "
            "projection",
            lambda layer: not layer.rule.in_cudnn,
        ),
    ),
)
ROUNDED = Form(
    "a recurrent layer in bfloat16, for which the CUDA provider has no kernel",
    ("Scan",),
    {"cuda": ("bfloat16",)},
    "RNN, GRU or LSTM",
)


def scan_recurrent(graph: Graph, target: Target, dtype: str) -> Graph:
    """The graph with every recurrent layer that is better a Scan on this target."""
    return with_items(graph, (_scanned(node, target, dtype) for node in nodes(graph.root)))


def _scanned(node: Node, target: Target, dtype: str) -> Node:
    if not isinstance(node.op, Recurrent):
        return node
    fits = [form for form in (PACKED, STEPPED, ROUNDED) if form.when(node.op, target, dtype) is None]
    return replace(node, op=Scanned(node.op, packed=fits[0] is PACKED)) if fits else node
