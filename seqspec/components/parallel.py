"""Sublayers that run in parallel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from seqspec.components.base import Context, Finding, Findings, Name, Path, Residual, camel
from seqspec.components.inherited import Inheritance
from seqspec.components.sublayers import Single, Sublayer, made_of
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.elementwise import Add


class Parallel(Sublayer):
    """Σ f_i(x) of sublayers that read the same input, with one norm and one residual, as in GPT-J and PaLM."""

    kind: Literal["parallel"]
    name: Name | None = None
    """The name of its norm and the prefix of its parameters; its kind by default."""
    block: list[Single] = Field(min_length=2)
    """The sublayers whose outputs are added."""
    residual: Residual = "add"
    """`none`: no residual, the sum replaces the input."""

    def opened(self) -> Iterator[tuple[Path, Single]]:
        yield from (((("block", n), sublayer)) for n, sublayer in enumerate(self.block))

    def resolved(self, said: Inheritance) -> Parallel:
        return self.model_copy(update={"name": self.called, "block": [s.resolved(said) for s in self.block]})

    def check(self, width: int) -> Findings:
        for n, sublayer in enumerate(self.block):
            yield from (f.under("block", n) for f in sublayer.check(width))
            if sublayer.residual == "none":
                yield Finding("SEQ232", ("block", n, "residual"), "the residual is that of the `parallel` around it")

    def build(self, g: Builder, x: Value, context: Context) -> tuple[Value, ...]:
        b = g.child(context.prefix + camel(self.called))
        inner, here = b.like(x, "x"), context.within(b)
        total, weights = None, []
        for sublayer in self.block:
            y, *seen = made_of(sublayer.build(b, inner, here))
            weights += seen
            total = y if total is None else b.add(Add(), total, y)
        assert total is not None
        hint = " ".join(["y", *(f"weights_{n}" for n in range(len(weights)))])
        return g.call_many(b.done(total, *weights), self.called, x, *context.arguments(), hint=hint)
