"""SIGINT and SIGTERM as exceptions with the shell's exit codes, so that what was begun is cleared away."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[None]:
    """Exit 130 after Ctrl-C, 143 after SIGTERM. A second signal while clearing away changes nothing."""
    before = [signal.signal(number, _exit) for number in _STOPPING]
    try:
        yield
    finally:
        for number, handler in zip(_STOPPING, before, strict=True):
            signal.signal(number, handler)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    for stopping in _STOPPING:
        signal.signal(stopping, signal.SIG_IGN)
    raise SystemExit(128 + number)
