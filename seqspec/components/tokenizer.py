"""The tokenizer of a spec, which maps text to ids and back. It is not part of the computation."""

from __future__ import annotations

from seqspec.components.base import Component


class Tokenizer(Component):
    """A `tokenizer.json` of the tokenizers library; compiled folders hold a copy, for `generate --text`."""

    file: str
    """A relative path inside the folder of the outermost spec."""
    eos: str | None = None
    """The token that ends a text, unless `generate` gets another id."""
    start: str | None = None
    """The token that a decoder after an encoder starts with, unless `generate` gets another id."""
