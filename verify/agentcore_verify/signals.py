"""Make signals stop the command and its server, wherever they arrive."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

RETRY_AFTER = 0.01
"""Seconds after which a dropped exception is raised again."""


@contextmanager
def unless_signalled(action: Callable[[], object]) -> Iterator[None]:
    """Run `action` after the block, also after an error, but not after a signal.

    A server that ends with the command needs nothing more.
    """
    try:
        yield
    except Exception:
        action()
        raise
    action()


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Make SIGTERM raise SystemExit, as SIGINT raises KeyboardInterrupt.

    Python drops an exception that a signal raises while a finalizer or a weakref callback
    runs, and the command would go on. It is raised again then. Only in the main thread.
    """
    dropped: list[BaseException] = []
    report = sys.unraisablehook

    def terminate(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def raise_again(number: int, frame: FrameType | None) -> None:
        raise dropped.pop()

    def notice(unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, (KeyboardInterrupt, SystemExit)):
            dropped.append(unraisable.exc_value)
            signal.setitimer(signal.ITIMER_REAL, RETRY_AFTER)
        else:
            report(unraisable)

    handlers = {signal.SIGTERM: terminate, signal.SIGALRM: raise_again}
    before = {number: signal.signal(number, handlers[number]) for number in handlers}
    sys.unraisablehook = notice
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)
