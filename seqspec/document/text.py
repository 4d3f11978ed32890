"""Decodes bytes to text, and refuses characters that may not be in it."""

from __future__ import annotations

import codecs
import re

from seqspec.diagnostics import Diagnostic, Span

from .limits import MAX_BYTES

# UTF-32 first: its little-endian mark starts like that of UTF-16.
_OTHER_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
# Everything but YAML's printable characters; U+0085, U+2028 and U+2029 are forbidden as well, because libyaml
# takes them for line ends and YAML 1.2 does not, so lines could be counted in two ways. The second pattern
# takes 3 ms to compile, so that waits until a text is not plain ASCII.
_FORBIDDEN_ASCII = re.compile("[^\t\n\r -~]")
_FORBIDDEN = "[^\t\n\r -~\u00a0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
# Refused before parsing: libyaml compares each %TAG line with all others, 8 s for 1 MiB of them.
_TAG_DIRECTIVE = re.compile(r"(?:^|[\r\n])(?P<at>%TAG)")


def decode(data: bytes, file: str) -> str | Diagnostic:
    """The text of UTF-8 bytes, with or without a byte order mark, or the finding that they are not UTF-8."""
    for mark, name in _OTHER_ENCODINGS:
        if data.startswith(mark):
            return _not_utf8(file, f"the file is {name}")
    if len(data) >= 2 and (data[0] == 0) != (data[1] == 0):
        return _not_utf8(file, "the file looks like UTF-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", "replace")
        byte = data[error.start]
        return _not_utf8(file, f"byte 0x{byte:02x} is not UTF-8", place_at(before, len(before)))


def check(text: str, file: str) -> Diagnostic | None:
    """The finding that forbids parsing this text, for its size or a character, or None."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return Diagnostic("SEQ012", f"the file is larger than {MAX_BYTES:,} bytes", file)
    found = _TAG_DIRECTIVE.search(text)
    if found is not None:
        place = place_at(text, found.start("at"))
        return Diagnostic("SEQ008", "`%TAG` is not accepted", file, place, hint="delete the line")
    found = (_FORBIDDEN_ASCII if text.isascii() else re.compile(_FORBIDDEN)).search(text)
    if found is None:
        return None
    return Diagnostic(
        "SEQ006",
        f"the character U+{ord(found[0]):04X} is not allowed",
        file,
        place_at(text, found.start()),
        hint="delete it, or write it as an escape inside double quotes",
    )


def place_at(text: str, offset: int) -> Span:
    """The place of the character at `offset`."""
    before = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return Span(line, column, line, column + 1)


def _not_utf8(file: str, message: str, span: Span | None = None) -> Diagnostic:
    hint = "save the file as UTF-8"
    return Diagnostic("SEQ005", message, file, span or Span(1, 1, 1, 1), hint=hint)
