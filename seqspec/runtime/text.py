"""Text to ids and back, by the tokenizer that a compiled folder holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from seqspec.diagnostics import RuntimeFault
from seqspec.diagnostics.extras import extra
from seqspec.runtime.manifest import Manifest

_PART = "\N{REPLACEMENT CHARACTER}"


class Tokenizer:
    """The tokenizers library with the folder's `tokenizer.json`; `eos_id` and `start_id` are named in the spec."""

    def __init__(self, manifest: Manifest) -> None:
        if manifest.tokenizer is None:
            text = f"{manifest.folder} has no tokenizer: its spec names none"
            raise RuntimeFault("SEQ518", text, "write `tokenizer: tokenizer.json` in the spec, or work with ids")
        self.eos_id: int | None = manifest.tokenizer.get("eos_id")
        self.start_id: int | None = manifest.tokenizer.get("start_id")
        with extra("text"):
            import tokenizers
        file = manifest.folder / manifest.tokenizer["file"]
        try:
            self.library: Any = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises this very class
            text = f"{file.name} cannot be read by tokenizers {tokenizers.__version__}: {error}"
            raise RuntimeFault("SEQ518", text, "save it with that version, or install the one that wrote it") from None

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with the special tokens that the tokenizer puts around it."""
        return list(self.library.encode(text).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special tokens left out."""
        return str(self.library.decode([int(one) for one in ids if one >= 0]))

    def stream(self, ids: Iterable[int]) -> Iterator[str]:
        """The text of ids piece by piece, in whole characters; joined, the pieces are the text of `decode`."""
        seen: list[int] = []
        shown = ""
        for one in ids:
            seen.append(one)
            text = self.decode(seen)
            # a character may take several ids, and text that a later id may change is not shown yet
            if text.startswith(shown) and not text.endswith(_PART):
                yield text[len(shown) :]
                shown = text
        yield self.decode(seen)[len(shown) :]
