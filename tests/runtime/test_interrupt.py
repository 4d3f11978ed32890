"""Signals: the exit code, time to clear away, and insisting where a library swallows every exception."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from seqspec.cli.interrupt import interruptible


def code_of(work: Callable[[], None]) -> object:
    """The exit code of interruptible work."""
    try:
        with interruptible():
            work()
    except SystemExit as stop:
        return stop.code
    return 0


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(5)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_exit_code_and_handlers(number: signal.Signals, code: int) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    assert code_of(lambda: send(number)) == code
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
    assert code_of(lambda: None) == 0


def test_a_swallowed_signal_is_not_lost() -> None:
    def work() -> None:
        with suppress(BaseException):
            send(signal.SIGTERM)
        time.sleep(5)

    start = time.perf_counter()
    assert code_of(work) == 143
    assert time.perf_counter() - start < 3


def test_clearing_away_is_not_disturbed() -> None:
    cleared = []

    def work() -> None:
        try:
            send(signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.7)
            cleared.append(True)

    assert code_of(work) == 143
    assert cleared
    time.sleep(0.5)  # nothing comes afterwards
