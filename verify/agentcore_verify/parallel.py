"""Sends many requests concurrently."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from agentcore_verify.signals import unless_signalled

Item = TypeVar("Item")
Value = TypeVar("Value")


def in_parallel(ask: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
    """Return the results of `ask` for each item, in order.

    After all have finished, raise the exception of the first item that has one.
    """
    with in_threads(partial(ask, item) for item in items) as asked:
        pass
    return [future.result() for future in asked]


@contextmanager
def in_threads(calls: Iterable[Callable[[], Value]]) -> Iterator[list[Future[Value]]]:
    """Run calls beside the block, each in its own thread; yield their futures.

    At the end of the block all have finished, even if it raises an error. A program that
    is interrupted does not wait for them.
    """
    futures: list[Future[Value]] = []
    for call in calls:
        future: Future[Value] = Future()
        futures.append(future)
        # No pool: Python waits for a pool's threads before it exits.
        threading.Thread(target=_run, args=(call, future), daemon=True).start()
    with unless_signalled(partial(wait, futures)):
        yield futures


def _run(call: Callable[[], Value], future: Future[Value]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
