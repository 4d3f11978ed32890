"""The file that makes ids of text, and text of ids. It is no part of the computation."""

from __future__ import annotations

from seqspec.components.base import Component


class Tokenizer(Component):
    """A `tokenizer.json` of the tokenizers library; compiled folders hold a copy, for `generate --text`."""

    file: str
    """The file: a relative path, inside the folder of the outermost spec."""
    eos: str | None = None
    """The token that ends a text, where `generate` is not told another id."""
    start: str | None = None
    """The token that a decoder behind an encoder begins with, where `generate` is not told another id."""
