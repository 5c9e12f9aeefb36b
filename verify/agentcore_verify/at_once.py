"""Many requests at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")


def at_once(ask: Callable[[Item], Value], items: Sequence[Item]) -> list[Value]:
    """What `ask` returns for each item, all asked at the same time, in order.

    Raises the first exception, by order of the items, once all have ended. What still
    waits for an answer when the caller is interrupted keeps nobody from ending.
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
