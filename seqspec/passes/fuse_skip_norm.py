"""Fuses x + skip and the norm of it into onnxruntime's SkipLayerNormalization or SkipSimplifiedLayerNormalization.

The outputs are the norm and the sum, which is the next residual. Half of these pairs cross the border of a block, so
the region must be flat.
"""

from __future__ import annotations

from collections import defaultdict

from seqspec.graph.ir import Graph, Node, Param, Region, Value
from seqspec.graph.types import DType
from seqspec.ops.elementwise import Add
from seqspec.ops.fused import FusedOp
from seqspec.ops.norm import LayerNorm, RMSNorm
from seqspec.passes.forms import Form, Target
from seqspec.passes.rewrite import nodes, with_items

Fused = dict[tuple[object, ...], FusedOp]
FORM = Form(
    "the sum of a block and its residual, and the norm of it",
    ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
    dict.fromkeys(("cpu", "cuda"), ("float32", "float16", "bfloat16")),
    "Add, and LayerNormalization or RMSNormalization",
)


def fuse_skip_norm(graph: Graph, target: Target, dtype: str) -> Graph:
    """Each norm of a sum of two equal shapes joined with the sum, at the sum's place."""
    if FORM.when(graph, target, dtype) is not None:
        return graph
    items = nodes(graph.root)
    readers: defaultdict[str, list[Node]] = defaultdict(list)
    for node in items:
        if isinstance(node.op, LayerNorm | RMSNorm) and node.inputs[0] is not None:
            readers[node.inputs[0].name].append(node)
    ops: Fused = {}
    eaten: set[int] = set()
    fused: list[Node] = []
    for node in items:
        norms = readers[node.outputs[0].name] if _is_residual(node) else []
        if norms:
            eaten.add(id(norms[0]))
            fused.append(_join(node, norms[0], ops))
        elif id(node) not in eaten:
            fused.append(node)
    return with_items(graph, fused)


def _is_residual(node: Node) -> bool:
    """Whether the kernel can take the sum: [B, T, D] + [B, T, D], of values."""
    if not isinstance(node.op, Add):
        return False
    a, b = node.inputs
    if a is None or b is None or isinstance(a, Param) or isinstance(b, Param):
        return False
    return a.shape == b.shape and len(a.shape) == 3 and a.dtype == b.dtype == "float"


def _join(add: Node, norm: Node, ops: Fused) -> Node:
    total = add.outputs[0]
    key = (norm.op, total.shape, total.dtype)
    if key not in ops:
        ops[key] = _skip_norm(norm, total)
    return Node(ops[key], add.inputs, (norm.outputs[0], total), norm.name, norm.origin)


def _skip_norm(norm: Node, total: Value) -> FusedOp:
    def value(name: str, dtype: DType = total.dtype) -> Value:
        return Value(name, total.shape, dtype)

    entry, skip, summed, output = value("input"), value("skip"), value("sum"), value("output")
    op = norm.op
    assert isinstance(op, LayerNorm | RMSNorm)
    name = "SkipLayerNormalization" if isinstance(op, LayerNorm) else "SkipSimplifiedLayerNormalization"
    items = (Node(Add(), (entry, skip), (summed,)), Node(op, (summed,), (output,)))
    body = Region(name, (entry, skip), items, (output, summed))
    parameters = tuple(p.name for p in op.params())
    # the outputs between are the mean and the deviation, for training
    return FusedOp(name, body, (("epsilon", op.eps),), parameters, slots=(0, 3), count=4)
