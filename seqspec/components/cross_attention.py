"""Attention of one stack over another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from seqspec.components.base import Context, Path, Word, width_of
from seqspec.components.inherited import Inheritance
from seqspec.components.projected import Heads
from seqspec.components.sublayers import Made
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops import masks
from seqspec.ops.cache import Hold


class CrossAttention(Heads):
    """x[B, T, D], memory[B, S, M] -> [B, T, D]: attention over another stack, masked by its padding; no positions."""

    kind: Literal["cross_attention"]
    from_: Word = Field(alias="from")
    """The stack that it attends to."""

    @property
    def attends(self) -> str:
        return self.from_

    def reads(self) -> Iterator[tuple[Path, str]]:
        yield ("from",), self.from_

    def resolved(self, said: Inheritance) -> CrossAttention:
        return self.model_copy(update=self.filled(said))

    def build(self, g: Builder, x: Value, context: Context) -> Made:
        b = g.child("CrossAttention")
        inner = b.like(x, "x")
        here = context.within(b, "memory", "memory_mask").values
        q, k, v = self._projected(b, inner, here["memory"], hints="")
        if context.stateful:
            k, v = b.add(Hold("key", cache=True), k, hint="k"), b.add(Hold("value", cache=True), v, hint="v")
        y, *weights = self._attend(b, (q, k, v), here.get("memory_mask"), masks.EVERYTHING)
        y = self._join(b, y, width_of(x))
        return self._call(g, b, (y, *weights), x, *context.arguments("memory", "memory_mask"))
