"""Sends many requests concurrently."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")


def at_once(ask: Callable[[Item], Value], items: Sequence[Item]) -> list[Value]:
    """What `ask` returns for each item, in order; one thread per item.

    When all have ended, raises the exception of the first item that has one. The threads
    are daemons: an interrupted program does not wait for them.
    """
    values: dict[int, Value] = {}
    errors: dict[int, BaseException] = {}

    def work(number: int, item: Item) -> None:
        try:
            values[number] = ask(item)
        except BaseException as error:
            errors[number] = error

    threads = [
        threading.Thread(target=work, args=(number, item), daemon=True)
        for number, item in enumerate(items)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [values[number] for number in range(len(items))]
