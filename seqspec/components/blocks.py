"""Blocks: sublayers in the order written, each with its norm and its residual; and the entries of `layers`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from seqspec.components.attention import CrossAttention, SelfAttention
from seqspec.components.base import ByKind, Component, Context, Count, Finding, Findings, Inlet, Word
from seqspec.components.efficient import LinearAttention, LowRankAttention
from seqspec.components.feedforward import FeedForward
from seqspec.components.linear import LinearLayer
from seqspec.components.norms import LayerNorm, RMSNorm
from seqspec.components.recurrent import GRU, LSTM, RNN
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Region, Value
from seqspec.ops.dropout import Dropout
from seqspec.ops.elementwise import Add

Sublayer = Annotated[
    SelfAttention | CrossAttention | LinearAttention | LowRankAttention | FeedForward,
    ByKind,
]
Placement = Literal["pre", "post", "sandwich"]


class Block(Component):
    """Sublayers, each with a norm as placed and a residual around it; the whole `repeat` times."""

    repeat: Count = 1
    """How many such blocks follow each other."""
    block: list[Sublayer] = Field(min_length=1)
    """The sublayers, in the order they run."""


class Pattern(Component):
    """Named blocks of the stack, one after the other; the whole `repeat` times."""

    repeat: Count = 1
    """How often the pattern is run through."""
    pattern: list[Word] = Field(min_length=1)
    """Names from the stack's `blocks`."""


Entry = Annotated[
    LSTM | GRU | RNN | LinearLayer | Block | Pattern,
    ByKind,
]


def name_of(sublayer: Sublayer) -> str:
    return sublayer.name or sublayer.kind


def check_names(sublayers: Sequence[Sublayer]) -> Findings:
    """Names must be given where a kind repeats, and be different, the norms' derived names included."""
    kinds = Counter(s.kind for s in sublayers if name_of(s) == s.kind)
    taken: set[str] = set()
    for n, sublayer in enumerate(sublayers):
        name = name_of(sublayer)
        if name in taken and name == sublayer.kind and kinds[name] > 1:
            text = f"the block has {kinds[name]} sublayers of kind `{name}`, so this one needs a `name`"
            yield Finding("SEQ206", (n,), text, f"write `name: {name}_{n + 1}`, or a better one")
        elif taken & {name, f"{name}_norm", f"post_{name}_norm"}:
            yield Finding("SEQ223", (n, "name"), f"the name `{name}` is taken, by a sublayer or by one's norm")
        taken |= {name, f"{name}_norm", f"post_{name}_norm"}


def build_block(
    g: Builder,
    name: str,
    sublayers: Sequence[Sublayer],
    x: Value,
    context: Context,
    norm: LayerNorm | RMSNorm,
    placement: Placement,
    dropout: float,
) -> Region:
    """x[B, T, D], context -> [B, T, D]. pre: x + f(norm(x)); post: norm(x + f(x)); sandwich: x + norm(f(norm(x)))."""
    b = g.child(name)
    x = Inlet(b).take(x, "x")
    here, width = context.within(b), int(str(x.shape[-1]))
    weights: list[Value] = []
    for sublayer in sublayers:
        own, y = name_of(sublayer), x
        if placement != "post":
            y = b.add(norm.op(width), y, name=f"{own}_norm")
        made = sublayer.build(b, y, here)
        if isinstance(made, tuple):
            y, seen = made
            weights.append(seen)
        else:
            y = made
        if placement == "sandwich":
            y = b.add(norm.op(width), y, name=f"post_{own}_norm")
        if dropout:
            y = b.add(Dropout(dropout), y)
        x = b.add(Add(), x, y, hint="" if placement == "post" else "x")
        if placement == "post":
            x = b.add(norm.op(width), x, name=f"{own}_norm", hint="x")
    return b.done(x, *weights)
