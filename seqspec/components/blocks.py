"""Blocks: sublayers in the order written, each with its norm and its residual; and the entries of `layers`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from seqspec.components.attention import CrossAttention, Made, SelfAttention
from seqspec.components.base import (
    ByKind,
    Component,
    Context,
    Count,
    Finding,
    Findings,
    Inlet,
    Name,
    Residual,
    Word,
    camel,
)
from seqspec.components.efficient import LinearAttention, LowRankAttention
from seqspec.components.feedforward import FeedForward
from seqspec.components.linear import LinearLayer
from seqspec.components.norms import LayerNorm, RMSNorm
from seqspec.components.recurrent import GRU, LSTM, RNN
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Region, Value
from seqspec.ops.dropout import Dropout
from seqspec.ops.elementwise import Add, Scale

Single = Annotated[
    SelfAttention | CrossAttention | LinearAttention | LowRankAttention | FeedForward,
    ByKind,
]


class Parallel(Component):
    """Σ f_i(x) of sublayers that read one input, behind one norm and under one residual: GPT-J, PaLM."""

    kind: Literal["parallel"]
    name: Name | None = None
    """Names its norm and what stands before its parameters' names; its kind by default."""
    block: list[Single] = Field(min_length=2)
    """The sublayers whose outputs are added."""
    residual: Residual = "add"
    """`none`: the sum goes on alone, without what came in."""

    def check(self, width: int) -> Findings:
        for n, sublayer in enumerate(self.block):
            yield from (f.under("block", n) for f in sublayer.check(width))
            if sublayer.residual == "none":
                yield Finding("SEQ232", ("block", n, "residual"), "the residual is that of the `parallel` around it")

    def build(self, g: Builder, x: Value, context: Context) -> tuple[Value, ...]:
        b = g.child(context.prefix + camel(str(self.name)))
        inner, here = b.like(x, "x"), context.within(b)
        total, weights = None, []
        for sublayer in self.block:
            y, *seen = _made(sublayer.build(b, inner, here))
            weights += seen
            total = y if total is None else b.add(Add(), total, y)
        assert total is not None
        hint = " ".join(["y", *(f"weights_{n}" for n in range(len(weights)))])
        return g.call_many(b.done(total, *weights), str(self.name), x, *context.arguments(), hint=hint)


Sublayer = Annotated[
    SelfAttention | CrossAttention | LinearAttention | LowRankAttention | FeedForward | Parallel,
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


def opened(block: Sequence[Sublayer]) -> Iterator[tuple[tuple[str | int, ...], Single]]:
    """Every sublayer at its path, those of a `parallel` in its place."""
    for n, sublayer in enumerate(block):
        if isinstance(sublayer, Parallel):
            yield from (((n, "block", m), inner) for m, inner in enumerate(sublayer.block))
        else:
            yield (n,), sublayer


def _made(made: Made | tuple[Value, ...]) -> tuple[Value, ...]:
    """What a sublayer gives, and any attention weights behind it."""
    return made if isinstance(made, tuple) else (made,)


def check_names(sublayers: Sequence[Sublayer]) -> Findings:
    """Names must be given where a kind repeats, and be different, the norms' derived names included."""
    every: list[tuple[tuple[str | int, ...], Sublayer]] = []
    for n, sublayer in enumerate(sublayers):
        every.append(((n,), sublayer))
        if isinstance(sublayer, Parallel):
            every += [((n, "block", m), inner) for m, inner in enumerate(sublayer.block)]
    kinds = Counter(s.kind for _, s in every if name_of(s) == s.kind)
    taken: set[str] = set()
    for n, (path, sublayer) in enumerate(every):
        name = name_of(sublayer)
        if name in taken and name == sublayer.kind and kinds[name] > 1:
            text = f"the block has {kinds[name]} sublayers of kind `{name}`, so this one needs a `name`"
            yield Finding("SEQ206", path, text, f"write `name: {name}_{n + 1}`, or a better one")
        elif taken & {name, f"{name}_norm", f"post_{name}_norm"}:
            yield Finding("SEQ223", (*path, "name"), f"the name `{name}` is taken, by a sublayer or by one's norm")
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
    scale: float,
) -> Region:
    """x[B, T, D], context -> [B, T, D]. pre: x + f(norm(x)); post: norm(x + f(x)); sandwich: x + norm(f(norm(x))).

    The x that is added is multiplied with `scale`; without a residual it is left out.
    """
    b = g.child(name)
    x = Inlet(b).take(x, "x")
    here, width = context.within(b), int(str(x.shape[-1]))
    weights: list[Value] = []
    for sublayer in sublayers:
        own, y = name_of(sublayer), x
        if placement != "post":
            y = b.add(norm.op(width), y, name=f"{own}_norm")
        y, *seen = _made(sublayer.build(b, y, here))
        weights += seen
        if placement == "sandwich":
            y = b.add(norm.op(width), y, name=f"post_{own}_norm")
        if dropout:
            y = b.add(Dropout(dropout), y)
        if sublayer.residual == "add":
            kept = x if scale == 1 else b.add(Scale(scale), x)
            y = b.add(Add(), kept, y, hint="" if placement == "post" else "x")
        x = y
        if placement == "post":
            x = b.add(norm.op(width), x, name=f"{own}_norm", hint="x")
    return b.done(x, *weights)
