"""Replaces linear maps by onnxruntime's MatMulNBits, which reads weights in 4 or 8 bits.

Embedding tables are not quantized. A head tied to one reads a quantized copy of it.
"""

from __future__ import annotations

from dataclasses import replace

from seqspec.graph.ir import Graph, Node, Param, Region, Value
from seqspec.ops.linear import Linear, TiedLinear
from seqspec.ops.packed import PackedLinear
from seqspec.ops.quantized import BLOCK, MatMulNBits
from seqspec.passes.forms import Form, Limit, Target
from seqspec.passes.options import Quantize
from seqspec.passes.rewrite import nodes, with_items

BITS: dict[Quantize, int] = {"int8": 8, "int4": 4}
FORM = Form(
    "a linear map, the head included, where weights are quantized; embeddings stay as they are",
    ("MatMulNBits",),
    {"cpu": ("float32", "float16"), "cuda": ("float32", "float16", "bfloat16")},
    "MatMul, unquantized",
    (Limit(f"the map has at least {BLOCK} inputs", lambda node: node.inputs[0].shape[-1] >= BLOCK),),
)


def quantize(graph: Graph, target: Target, dtype: str, quantize: Quantize) -> Graph:
    """The graph with rounded weights in every linear map that the kernel can compute."""
    bits = BITS[quantize]
    items = (
        _quantized(node, bits) if _is_map(node) and FORM.when(node, target, dtype) is None else node
        for node in nodes(graph.root)
    )
    return with_items(graph, items)


def _is_map(node: Node) -> bool:
    tied = isinstance(node.op, TiedLinear) and isinstance(node.inputs[1], Param) and not node.name
    return tied or isinstance(node.op, Linear | PackedLinear)


def _quantized(node: Node, bits: int) -> Node:
    x, *table = node.inputs
    assert x is not None
    entries = tuple(Value(n, v.shape, v.dtype) for n, v in zip(("x", "table"), node.inputs, strict=False) if v)
    output = replace(node.outputs[0], name="output", hint="")
    body = Region("MatMulNBits", entries, (Node(node.op, entries, (output,)),), (output,))
    sizes = {"K": int(x.shape[-1]), "N": int(output.shape[-1])}  # type: ignore[arg-type]
    attributes = {**sizes, "bits": bits, "block_size": BLOCK, "accuracy_level": 4}
    tie = next((t.name for t in table if t is not None), "")
    op = MatMulNBits("MatMulNBits", body, tuple(attributes.items()), (), (0,), 1, bits=bits, tie=tie)
    return replace(node, op=op)
