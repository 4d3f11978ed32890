"""Blocks, which hold sublayers with their norms and residuals, and patterns, which name blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import Field

from seqspec.components.base import Context, Count, Finding, Findings, Inlet, Path, Word
from seqspec.components.inherited import Inheritance, Placement
from seqspec.components.layers import Blocks, Entry, Layer, named_block
from seqspec.components.norms import Norm
from seqspec.components.sublayers import Sublayer, made_of
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Region, Value
from seqspec.ops.dropout import Dropout
from seqspec.ops.elementwise import Add, Scale


class Block(Entry):
    """Sublayers in order, each with its norm and a residual around it; the whole `repeat` times."""

    has_blocks = True

    repeat: Count = 1
    """How many such blocks follow one another."""
    block: list[Sublayer] = Field(min_length=1)
    """The sublayers, in the order they run."""

    def opened(self, path: Path, blocks: Blocks) -> Iterator[Layer]:
        yield Layer(path, (*path, "block"), tuple(self.block))

    def resolved(self, said: Inheritance) -> Block:
        return self.model_copy(update={"block": [s.resolved(said) for s in self.block]})


class Pattern(Entry):
    """Named blocks of the stack, one after the other; the whole `repeat` times."""

    has_blocks = True

    repeat: Count = 1
    """How often the pattern repeats."""
    pattern: list[Word] = Field(min_length=1)
    """Names from the stack's `blocks`."""

    @property
    def count(self) -> int:
        return len(self.pattern)

    @property
    def named(self) -> Sequence[str]:
        return self.pattern

    def check_named(self, blocks: Blocks) -> Findings:
        for n, name in enumerate(self.pattern):
            if name not in blocks:
                known = ", ".join(f"`{k}`" for k in blocks) or "none"
                yield Finding("SEQ218", ("pattern", n), f"`{name}` is no block of this stack", f"known blocks: {known}")

    def opened(self, path: Path, blocks: Blocks) -> Iterator[Layer]:
        for name in self.pattern:
            if name in blocks:
                yield named_block(name, blocks)

    def resolved(self, said: Inheritance) -> Pattern:
        return self


def check_names(sublayers: Sequence[Sublayer]) -> Findings:
    """Names must be given where a kind repeats, and must be unique, the derived names of norms included."""
    every: list[tuple[Path, Sublayer]] = []
    for n, sublayer in enumerate(sublayers):
        every.append(((n,), sublayer))
        every += [((n, *path), inner) for path, inner in sublayer.opened() if inner is not sublayer]
    kinds = Counter(s.kind for _, s in every if s.called == s.kind)
    taken: set[str] = set()
    for n, (path, sublayer) in enumerate(every):
        name = sublayer.called
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
    norm: Norm | None,
    placement: Placement,
    dropout: float,
    scale: float,
) -> Region:
    """x[B, T, D], context -> [B, T, D]. pre: x + f(norm(x)); post: norm(x + f(x)); sandwich: x + norm(f(norm(x)));
    none: x + f(x).

    The residual x is multiplied by `scale`; a sublayer without a residual leaves it out.
    """
    b = g.child(name)
    x = Inlet(b).take(x, "x")
    here, width = context.within(b), int(str(x.shape[-1]))

    def normed(y: Value, called: str, hint: str = "") -> Value:
        assert norm is not None
        return b.add(norm.op(width), y, name=called, hint=hint)

    weights: list[Value] = []
    for sublayer in sublayers:
        own, y = sublayer.called, x
        if placement in ("pre", "sandwich"):
            y = normed(y, f"{own}_norm")
        y, *seen = made_of(sublayer.build(b, y, here))
        weights += seen
        if placement == "sandwich":
            y = normed(y, f"post_{own}_norm")
        if dropout:
            y = b.add(Dropout(dropout), y)
        if sublayer.residual == "add":
            kept = x if scale == 1 else b.add(Scale(scale), x)
            y = b.add(Add(), kept, y, hint="" if placement == "post" else "x")
        x = y
        if placement == "post":
            x = normed(x, f"{own}_norm", "x")
    return b.done(x, *weights)
