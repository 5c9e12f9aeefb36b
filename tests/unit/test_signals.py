"""A signal stops the command at any point of its Python code."""

from __future__ import annotations

import os
import signal
import sys
import time
import weakref

import pytest

from agentcore_verify.signals import signals_as_exceptions

SIGNALS = pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)],
)


class Told:
    """An object that supports weak references."""


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    # Handlers run between two Python instructions.
    time.sleep(0.1)


@SIGNALS
def test_a_signal_swallowed_by_a_weakref_callback_raises_after_it(
    number: int, error: type[BaseException]
) -> None:
    arrived = False
    with pytest.raises(error), signals_as_exceptions():
        told = Told()
        weakref.finalize(told, send, number)
        del told
        arrived = True
        time.sleep(5)
    assert arrived


def test_handlers_and_hooks_are_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ends:
        def __del__(self) -> None:
            raise ValueError("of the finalizer")

    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: said.append(told.exc_type))
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]
    with signals_as_exceptions():
        Ends()
        assert said == [ValueError]
    Ends()
    assert said == [ValueError, ValueError]
    after = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]
    assert after == before
