"""How large a spec may be before it is refused. No spec written by people comes near these limits."""

from __future__ import annotations

MAX_BYTES = 1 << 20  # per file, before decoding
MAX_DEPTH = 64  # levels of nested mappings and lists, aliases expanded
MAX_NODES = 50_000  # values after aliases are expanded, over all files of a spec
MAX_ALIASES = 200  # over all files of a spec
MAX_FILES = 16  # in a chain of `extends`
MAX_NUMBER = 100  # characters in a number
