"""Activations: the elementwise functions that a spec can name."""

from __future__ import annotations

from typing import Literal

from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.elementwise import Unary

Activation = Literal["none", "relu", "relu2", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]


def activated(b: Builder, x: Value, activation: Activation, hint: str = "") -> Value:
    """activation(x), or x itself for `none`."""
    return x if activation == "none" else b.add(Unary(activation), x, hint=hint)
