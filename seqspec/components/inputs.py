"""Inputs: what a stack reads, and the table or map that makes vectors of it."""

from __future__ import annotations

from math import sqrt
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from seqspec.components.audio import Audio
from seqspec.components.base import ByKind, Component, Count, Finding, Findings
from seqspec.components.image import Image
from seqspec.components.norms import Norm
from seqspec.graph.builder import Builder
from seqspec.graph.dims import Shape
from seqspec.graph.ir import Param, Value
from seqspec.graph.types import DType
from seqspec.ops.elementwise import Add, Scale
from seqspec.ops.embedding import Embedding, Lookup
from seqspec.ops.linear import Linear
from seqspec.ops.padding import ZeroPadding

TokenId = Annotated[int, Field(ge=0)]


class Tables(NamedTuple):
    """Token tables that another stack owns, handed in as arguments."""

    tokens: Value
    types: Value | None


class Tokens(Component):
    """Token ids [B, T] -> vectors [B, T, D], from a table called `embed_tokens`."""

    port: ClassVar[str] = "input_ids"
    dtype: ClassVar[DType] = "int64"

    kind: Literal["tokens"]
    vocab_size: Count | None = None
    """Rows of the table. Required, unless the table is shared."""
    d_model: Count | None = None
    """Width of the table; the stack's by default. Where both are written and differ, a linear map joins them."""
    pad_id: TokenId | None = None
    """The id that is padding wherever no `attention_mask` is given."""
    scale: Literal["none", "sqrt_d_model"] | None = None
    """What the vectors are multiplied with: nothing by default; the original Transformer uses sqrt(d_model)."""
    token_types: Count | None = None
    """Rows of a second table, `embed_types`, read by `token_type_ids` and added: BERT's segments."""
    norm: Norm | None = None
    """A norm behind the sum of all embeddings, called `embed_norm`, as in BERT."""
    share: str | None = None
    """`encoder.input`: use that stack's tables under its names. Sizes come along, pad_id and scale unless written."""

    def resolved(self, d_model: int | None, owner: Tokens | None) -> Tokens:
        """With every default filled in; `owner` is the resolved input that `share` names."""
        if owner is not None:
            pad_id = owner.pad_id if self.pad_id is None else self.pad_id
            return self.model_copy(update={"pad_id": pad_id, "scale": self.scale or owner.scale})
        width = self.d_model or (d_model if self.share is None else None)
        return self.model_copy(update={"d_model": width, "scale": self.scale or "none"})

    def check(self, owner: Tokens | None) -> Findings:
        """`owner` is the input that `share` names, once found."""
        if self.share is not None:
            for field in ("vocab_size", "d_model", "token_types"):
                if getattr(self, field) is not None:
                    text = f"`{field}` comes from {self.share} and cannot be given beside `share`"
                    yield Finding("SEQ215", (field,), text)
        elif self.vocab_size is None:
            yield Finding("SEQ102", (), "missing field `vocab_size`", "say how many ids there are, or `share` a table")
        vocabulary = self.vocab_size or (owner.vocab_size if owner else None)
        if self.pad_id is not None and vocabulary is not None and self.pad_id >= vocabulary:
            yield Finding("SEQ229", ("pad_id",), f"pad_id ({self.pad_id}) must be below vocab_size ({vocabulary})")

    def embed(
        self, b: Builder, ids: Value, types: Value | None, tables: Tables | None, width: int, stack_width: int
    ) -> Value:
        """ids[B, T] -> [B, T, stack_width]: table, scale, map, types. Positions and the norm come behind."""
        if tables:
            x = b.add(Lookup(), ids, tables.tokens)
        else:
            x = b.add(Embedding(self.sizes, width), ids, name="embed_tokens")
        if self.scale == "sqrt_d_model":
            x = b.add(Scale(sqrt(width)), x)
        if width != stack_width:
            x = b.add(Linear(width, stack_width, False), x, name="embed_proj")
        if types is not None:
            x = b.add(Add(), x, self._types(b, types, tables, stack_width))
        return x

    @property
    def sizes(self) -> int:
        return int(self.vocab_size or 0)

    def _types(self, b: Builder, types: Value, tables: Tables | None, width: int) -> Value:
        if tables and tables.types is not None:
            return b.add(Lookup(), types, tables.types)
        return b.add(Embedding(int(self.token_types or 0), width), types, name="embed_types")

    def tables(self, stack: str, width: int, stack_width: int) -> Tables:
        """This input's own tables, for another stack that shares them."""
        tokens = Param(f"{stack}.embed_tokens.weight", (self.sizes, width))
        rows = self.token_types
        return Tables(tokens, Param(f"{stack}.embed_types.weight", (rows, stack_width)) if rows else None)

    def shape(self, batch_time: Shape) -> Shape:
        return batch_time


class Features(Component):
    """Vectors [B, T, size] -> [B, T, D], through a linear map `input_proj` where a `d_model` is written."""

    port: ClassVar[str] = "features"
    dtype: ClassVar[DType] = "float"

    kind: Literal["features"]
    size: Count
    """Channels of a vector."""
    d_model: Count | None = None
    """Width after the map; without it, and without one on the stack, features enter raw."""
    norm: Norm | None = None
    """A norm behind the map and the positions, called `embed_norm`."""

    def check(self) -> Findings:
        yield from ()

    def embed(self, b: Builder, x: Value, mask: Value | None, width: int | None) -> Value:
        """x[B, T, size] -> [B, T, D], zeros at padding first, so that a NaN there reaches nothing."""
        x = b.add(ZeroPadding(), x, mask)
        return x if width is None else b.add(Linear(self.size, width), x, name="input_proj")

    def shape(self, batch_time: Shape) -> Shape:
        return (*batch_time, self.size)


Input = Annotated[Tokens | Features | Audio | Image, ByKind]
