"""What runs once: held tensors in PyTorch, and the mask of all layers in a file."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from cases import B, S, T, random

from seqspec.backends import onnx as onnx_backend
from seqspec.backends.torch import module
from seqspec.graph.builder import Builder
from seqspec.graph.dims import ENCODER_TIME, dim
from seqspec.graph.ir import Graph
from seqspec.ops.attention import Attention
from seqspec.ops.cache import Hold
from seqspec.ops.linear import Linear
from seqspec.ops.masks import Band


def test_what_leads_to_a_held_tensor_runs_on_the_first_call_only() -> None:
    builder = Builder("Holding")
    memory = builder.input("memory", (B, dim(ENCODER_TIME), 4), optional=True)
    held = builder.add(Hold("keys"), builder.add(Linear(4, 3), memory, name="k_proj"), name="attention", hint="keys")
    graph = Graph(builder.done(held), once=frozenset({"memory"}))
    model = module(graph, seed=1)
    calls = []
    model.k_proj.register_forward_hook(lambda *_: calls.append(1))
    x = torch.tensor(random(2, 5, 4), dtype=torch.float32)
    first = model(memory=x)
    again = model(state=first.state)
    assert len(calls) == 1
    assert torch.equal(first.keys, again.keys)


def test_layers_share_the_nodes_of_their_mask() -> None:
    builder = Builder("Layers")
    mask = builder.input("mask", (B, S), "bool")
    k, v = (builder.input(name, (B, 2, S, 6)) for name in ("k", "v"))
    x = builder.input("q", (B, 4, T, 6))
    for band in (Band(2, 0), Band(2, 0), Band(None, 0), Band(2, 0)):
        x = builder.add(Attention(band), x, k, v, mask, hint="x")
    model = onnx_backend.model(Graph(builder.done(x)), {}, target="portable")
    counts = Counter(node.op_type for node in model.graph)
    assert counts["Attention"] == 4
    assert counts["Expand"] == 2  # one for each band
    assert counts["CumSum"] == 1
    assert np.prod([counts["Slice"], counts["Range"]]) == 2
