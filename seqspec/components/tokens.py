"""Token input: ids, and the tables that turn them into vectors."""

from __future__ import annotations

from math import sqrt
from typing import Literal

from seqspec.components.base import Count, Finding, Findings, TokenId, VocabularySize, Width
from seqspec.components.inputs import Around, Input, Owner, Tables
from seqspec.components.norms import Norm
from seqspec.graph.builder import Builder
from seqspec.graph.dims import Shape
from seqspec.graph.ir import Param, Value
from seqspec.ops.elementwise import Add, Scale
from seqspec.ops.embedding import Embedding, Lookup
from seqspec.ops.linear import Linear


class Tokens(Input):
    """Token ids [B, T] -> vectors [B, T, D], from a table called `embed_tokens`."""

    port = "input_ids"
    dtype = "int64"

    kind: Literal["tokens"]
    vocab_size: VocabularySize | None = None
    """Rows of the table. Required unless the table is shared."""
    d_model: Width | None = None
    """Width of the table; the stack's by default. If it differs from the stack's, a linear map follows."""
    pad_id: TokenId | None = None
    """The id that counts as padding if no `attention_mask` is given."""
    scale: Literal["none", "sqrt_d_model"] | None = None
    """Factor on the vectors: none by default; the original Transformer uses sqrt(d_model)."""
    token_types: Count | None = None
    """Rows of a second table, `embed_types`, read by `token_type_ids` and added: BERT's segments."""
    norm: Norm | None = None
    """A norm after the sum of all embeddings, called `embed_norm`, as in BERT."""
    share: str | None = None
    """`encoder.input`: use the tables of that stack, with their sizes; pad_id and scale too unless given here."""

    @property
    def padding_id(self) -> int | None:
        return self.pad_id

    def stack_width(self, owner: Tokens | None) -> int | None:
        return owner.d_model if owner else self.d_model

    def resolved(self, d_model: int | None, owner: Tokens | None) -> Tokens:
        if owner is not None:
            pad_id = owner.pad_id if self.pad_id is None else self.pad_id
            return self.model_copy(update={"pad_id": pad_id, "scale": self.scale or owner.scale})
        width = self.d_model or (d_model if self.share is None else None)
        return self.model_copy(update={"d_model": width, "scale": self.scale or "none"})

    def check(self, d_model: int | None, owner: Owner | None) -> Findings:
        if self.share is not None:
            for field in ("vocab_size", "d_model", "token_types"):
                if getattr(self, field) is not None:
                    text = f"`{field}` comes from {self.share} and cannot be given beside `share`"
                    yield Finding("SEQ215", (field,), text)
        elif self.vocab_size is None:
            yield Finding("SEQ102", (), "missing field `vocab_size`", "say how many ids there are, or `share` a table")
        vocabulary = self.vocab_size or (owner.input.vocab_size if owner else None)
        if self.pad_id is not None and vocabulary is not None and self.pad_id >= vocabulary:
            yield Finding("SEQ229", ("pad_id",), f"pad_id ({self.pad_id}) must be below vocab_size ({vocabulary})")
        if owner and owner.input.token_types and owner.d_model != d_model:
            text = f"shared token types are {owner.d_model} wide, but this stack has d_model {d_model}"
            yield Finding("SEQ204", ("share",), text, "make the widths equal")

    def shape(self, batch_time: Shape) -> Shape:
        return batch_time

    def vectors(self, b: Builder, data: Value, around: Around) -> Value:
        """ids[B, T] -> [B, T, D]: table, scale, map, types."""
        owner = around.owner or self
        types = self._types(b, data, around) if owner.token_types else None
        tables = around.tables and Tables(
            around.inlet.take(around.tables.tokens, "tokens_table"),
            around.inlet.take_optional(around.tables.types, "types_table"),
        )
        width = int(owner.d_model or 0)
        if tables:
            x = b.add(Lookup(), data, tables.tokens)
        else:
            x = b.add(Embedding(self.rows, width), data, name="embed_tokens")
        if self.scale == "sqrt_d_model":
            x = b.add(Scale(sqrt(width)), x)
        if width != around.width:
            x = b.add(Linear(width, around.width, False), x, name="embed_proj")
        if types is None:
            return x
        if tables and tables.types is not None:
            return b.add(Add(), x, b.add(Lookup(), types, tables.types))
        table = Embedding(int(self.token_types or 0), around.width)
        return b.add(Add(), x, b.add(table, types, name="embed_types"))

    @property
    def rows(self) -> int:
        """Rows of its own table."""
        return int(self.vocab_size or 0)

    def _types(self, b: Builder, ids: Value, around: Around) -> Value:
        from seqspec.ops.optional import OrZeros  # not at the top: few models need it

        return b.add(OrZeros(), around.declare("token_type_ids", ids.shape), ids)

    def tables(self, stack: str, width: int, stack_width: int) -> Tables:
        """This input's own tables, for another stack that shares them."""
        tokens = Param(f"{stack}.embed_tokens.weight", (self.rows, width))
        types = self.token_types
        return Tables(tokens, Param(f"{stack}.embed_types.weight", (types, stack_width)) if types else None)
