"""Makes text from a spec safe to print.

Spec text can move the cursor, hide characters or reorder them: C0 and C1 controls, ESC, bidirectional
controls, zero-width characters, lone surrogates. All of these are shown as escapes (`\\x1b`,
`\\u202e`), so that what is printed is what the file holds.
"""

from __future__ import annotations

# Control, format (bidi, zero width), surrogate, private, unassigned, line and paragraph separator.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
MAX_MESSAGE_BYTES = 4096


def escape_character(character: str) -> str:
    """The character itself, or an escape if it is invisible or controls a terminal."""
    if " " <= character <= "~":
        return character
    import unicodedata  # not at the top: only text beyond ASCII pays for it

    if unicodedata.category(character) not in _HIDDEN:
        return character
    if character in _NAMED:
        return _NAMED[character]
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def escape(text: str) -> str:
    """The text on one line with nothing hidden. Idempotent."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(escape_character, text))


def clip(text: str, limit: int = MAX_MESSAGE_BYTES) -> str:
    """At most `limit` bytes of UTF-8, with `…` at the end when something was cut off."""
    if len(text) * 4 <= limit:
        return text
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return text
    return data[: limit - 3].decode("utf-8", "ignore") + "…"


def quoted(value: object, limit: int = 60) -> str:
    """A value between backticks, short enough to stand in a sentence."""
    text = value if isinstance(value, str) else _repr(value)
    shown = escape(text[: limit + 1])
    return f"`{shown[: limit - 1]}…`" if len(shown) > limit else f"`{shown}`"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return f"{value:#x}" if isinstance(value, int) else type(value).__name__


def width(text: str) -> int:
    """Terminal cells that escaped text takes: two for wide East Asian characters, none for combining marks."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
