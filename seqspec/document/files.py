"""Reads files that a spec names, without trusting the names.

Only regular files are opened (a pipe or a device may never end), and an extended file must lie,
after symbolic links are followed, in the folder of the outermost spec. The last path component is
opened without following links and compared with the file examined before, so that it cannot be
swapped in between.
"""

from __future__ import annotations

import os
import re
import stat

from .limits import MAX_BYTES

# Windows lacks the first two flags, and its devices cannot be opened by these paths in a way that blocks.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_FLAGS |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class Refused(Exception):
    """A file is refused. The caller adds the place to show."""

    def __init__(self, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(code, message, hint)
        self.code, self.message, self.hint = code, message, hint


def read(real: str, shown: str, limit: int = MAX_BYTES) -> bytes:
    """The content of the regular file at `real`, a path without symbolic links; messages call it `shown`."""
    try:
        before = os.lstat(real)
        if not stat.S_ISREG(before.st_mode):
            raise Refused("SEQ031", f"`{shown}` is {_what(before.st_mode)}, not a regular file")
        descriptor = os.open(real, _FLAGS)
    except OSError as error:
        raise Refused("SEQ030", f"cannot read `{shown}`: {_reason(error)}") from None
    except ValueError:
        raise Refused("SEQ030", f"cannot read `{shown}`: not a path") from None
    with os.fdopen(descriptor, "rb") as file:
        if not os.path.samestat(before, os.fstat(descriptor)):
            raise Refused("SEQ030", f"`{shown}` changed while it was opened")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Refused("SEQ012", f"`{shown}` is larger than {limit:,} bytes")
    return data


def find(written: str, folder: str, root: str, *, key: str = "extends", example: str = "base.yaml") -> str:
    """The real path of the file that `key: written` names in `folder`. Refused outside of `root`."""
    problem = _not_relative(written)
    if problem:
        hint = f"write a path relative to this file, such as `{example}`"
        raise Refused("SEQ032", f"`{key}` {problem}", hint)
    real = os.path.realpath(os.path.join(folder, written))
    if not is_inside(real, root):
        message = f"`{key}: {written}` leaves the folder of the spec"
        raise Refused("SEQ033", message, "copy the file into that folder")
    return real


def is_inside(real: str, root: str) -> bool:
    """Whether the real path `real` lies in `root` or below."""
    try:
        return os.path.commonpath([real, root]) == root
    except ValueError:  # on another drive
        return False


def _not_relative(written: str) -> str | None:
    if not written.strip():
        return "is empty"
    if any(ord(character) < 32 or ord(character) == 127 for character in written):
        return "holds a control character"
    if written.startswith("~"):
        return "does not know home folders"
    if "\\" in written:
        return "uses `/` between folders"
    if written.startswith("/"):
        return "must be a relative path"
    if _ADDRESS.match(written):
        return "must be a path, not an address or a drive"
    return None


def _what(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    if stat.S_ISLNK(mode):
        return "a link that leads nowhere"
    return "a device"


def _reason(error: OSError) -> str:
    return (error.strerror or "it cannot be opened").lower()
