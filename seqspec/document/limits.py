"""What a spec may cost before it is refused. No spec written by people comes near any of these."""

from __future__ import annotations

MAX_BYTES = 1 << 20  # a file, before decoding
MAX_DEPTH = 64  # mappings and lists inside each other, aliases expanded
MAX_NODES = 50_000  # values after aliases are expanded, over all files of a spec
MAX_ALIASES = 200  # over all files of a spec
MAX_FILES = 16  # a chain of `extends`
MAX_NUMBER = 100  # characters of a number
