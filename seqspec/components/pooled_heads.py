"""Heads that may pool the sequence to one vector: classification, regression and embedding."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from seqspec.components.base import Count, Finding, Findings, width_of
from seqspec.components.heads import Head, Pooling, Readable, Reading
from seqspec.graph.builder import Builder
from seqspec.graph.ir import Value
from seqspec.ops.linear import Linear
from seqspec.ops.loss import CrossEntropy, MeanSquaredError
from seqspec.ops.normalize import Normalize
from seqspec.ops.pool import Pool


class PooledHead(Head):
    """A head that may pool over time first."""

    pool: Pooling
    """`first`, `last`, `mean` or `max` over real tokens, `final_state` for the last recurrent layer's h, or `none`."""

    @property
    def pooled(self) -> Pooling:
        return self.pool

    def _padding(self, reading: Reading) -> Value | None:
        """The mask, if there is an output for every position."""
        return reading.mask if self.pool == "none" else None

    def check(self, stack: Readable) -> Findings:
        if self.pool == "final_state" and not stack.final_state:
            text = "`pool: final_state` needs a recurrent last layer"
            yield Finding("SEQ216", ("pool",), text, "choose `last` or `mean`")

    def reduce(self, g: Builder, reading: Reading) -> Value:
        """[B, T, D] -> [B, D], or unchanged for `none`. Heads with the same pool share the result."""
        if self.pool == "none":
            return reading.x
        if self.pool not in reading.pooled:
            reading.pooled[self.pool] = self._reduce(g, reading)
        return reading.pooled[self.pool]

    def _reduce(self, g: Builder, reading: Reading) -> Value:
        if self.pool == "final_state":
            assert reading.final is not None
            h, select = reading.final
            return g.add(select, h, hint="pooled")
        assert self.pool != "none"
        return g.add(Pool(self.pool, reading.stateful and self.pool == "last"), reading.x, reading.mask, hint="pooled")


class MappedHead(PooledHead):
    """A linear map of what is pooled, or of every position with `pool: none`."""

    bias: bool = True
    """Whether the linear map has a bias."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How wide the result is."""

    def build(self, g: Builder, reading: Reading, name: str = "head") -> Value:
        x = self.reduce(g, reading)
        return g.add(Linear(width_of(x), self.outputs, self.bias), x, name=name, hint="logits")

    @property
    def labels_positions(self) -> bool:
        return self.pool == "none"


class Classifier(MappedHead):
    """pooled x -> logits[B, classes], or [B, T, classes] with `pool: none`."""

    kind: Literal["classifier"]
    classes: Count
    """The number of logits."""

    @property
    def outputs(self) -> int:
        return self.classes

    def loss(self, g: Builder, reading: Reading, output: Value, *, shift: bool, prefix: str = "") -> Value:
        labels = g.input(f"{prefix}labels", output.shape[:-1], "int64", optional=True)
        return g.add(CrossEntropy(), output, labels, self._padding(reading), hint=f"{prefix}loss")


class Regression(MappedHead):
    """pooled x -> numbers [B, size], or [B, T, size] with `pool: none`."""

    kind: Literal["regression"]
    size: Count
    """The number of outputs."""

    @property
    def outputs(self) -> int:
        return self.size

    def loss(self, g: Builder, reading: Reading, output: Value, *, shift: bool, prefix: str = "") -> Value:
        labels = g.input(f"{prefix}labels", output.shape, optional=True)
        return g.add(MeanSquaredError(), output, labels, self._padding(reading), hint=f"{prefix}loss")


class Embedding(PooledHead):
    """pooled x itself: sentence embeddings."""

    kind: Literal["embedding"]
    normalize: bool = False
    """Whether each vector is divided by its length, so that dot products are cosines."""

    def build(self, g: Builder, reading: Reading, name: str = "head") -> Value:
        x = self.reduce(g, reading)
        if not self.normalize:
            return x
        return g.add(Normalize(), x, hint="embedding")
