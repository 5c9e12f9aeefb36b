"""What a person sees while a run goes on; the report comes after it."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.status import Status
from rich.text import Text

from .results import Result

LINE_INTERVAL = 10.0
"""Seconds between two lines about a server that is loading, without a terminal."""
LINE_WIDTH = 120
"""Where such a line is cut; SGLang has some of many thousand letters."""


class Progress(Protocol):
    """Told what is going on."""

    def say(self, line: str) -> None:
        """Something to be read later as well."""

    def waiting(self, seconds: float, last: str) -> None:
        """The server has been loading so long; `last`: the last line of its log."""

    def checking(self, name: str, number: int, total: int) -> None:
        """A check begins, the so-and-so-manieth."""

    def checked(self, result: Result) -> None:
        """A check has ended."""


class Lines:
    """Plain lines, for a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = time.monotonic()

    def say(self, line: str) -> None:
        self._console.print(
            f"agentcore-patch: {line}", markup=False, highlight=False, soft_wrap=True
        )

    def waiting(self, seconds: float, last: str) -> None:
        if time.monotonic() - self._shown >= LINE_INTERVAL:
            self._shown = time.monotonic()
            line = f"SGLang is loading, {seconds:.0f} s: {last.strip()}"
            self.say(textwrap.shorten(line, LINE_WIDTH, placeholder="..."))

    def checking(self, name: str, number: int, total: int) -> None: ...

    def checked(self, result: Result) -> None:
        self.say(f"{result.check}: {result.outcome.value} ({result.seconds:.1f} s)")


class Spinner:
    """One line at the foot of a terminal that says what goes on now."""

    def __init__(self, console: Console, status: Status) -> None:
        self._console = console
        self._status = status

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def waiting(self, seconds: float, last: str) -> None:
        self._show(f"SGLang is loading, {seconds:.0f} s: {last}")

    def checking(self, name: str, number: int, total: int) -> None:
        self._show(f"checking {name} ({number} of {total})")

    def checked(self, result: Result) -> None: ...

    def _show(self, line: str) -> None:
        text = Text(line, no_wrap=True, overflow="ellipsis")
        text.truncate(max(10, self._console.width - 4), overflow="ellipsis")
        self._status.update(text)


@contextmanager
def shown(console: Console) -> Iterator[Progress]:
    """Progress on a console: a spinner on a terminal, else lines."""
    if console.is_terminal and not console.is_dumb_terminal:
        with console.status("") as status:
            yield Spinner(console, status)
    else:
        yield Lines(console)
