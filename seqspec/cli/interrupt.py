"""Turns SIGINT and SIGTERM into exceptions with the shell's exit codes, so that unfinished output is cleaned up."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM)
_AGAIN = 0.2  # seconds


@contextmanager
def interruptible() -> Iterator[None]:
    """Exit 130 after Ctrl-C, 143 after SIGTERM. Further signals during the cleanup are ignored."""
    before = {number: signal.signal(number, _stop) for number in _STOPPING}
    try:
        yield
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


class _Stop(SystemExit):
    """The exit after a signal, as distinct from a library's own SystemExit."""


def _stop(number: int, frame: FrameType | None) -> None:
    for stopping in _STOPPING:
        signal.signal(stopping, signal.SIG_IGN)
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.signal(signal.SIGALRM, lambda *_: _insist(number))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
    raise _Stop(128 + number)


def _insist(number: int) -> None:
    """Raises again unless the exit is under way: a bare `except` in a library may have swallowed the first."""
    if not isinstance(sys.exception(), _Stop):
        raise _Stop(128 + number)
