"""Show a run's progress on stderr; the report follows at the end."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from .results import Result

LINE_INTERVAL = 10.0
"""Seconds between two lines about a starting server, without a terminal."""
LINE_WIDTH = 120
"""Length at which a line is cut; SGLang logs lines of many thousand characters."""


class Progress:
    """Receives the events of a run; prints plain lines, for a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_line = time.monotonic()

    def message(self, line: str) -> None:
        self._console.print(
            f"agentcore-patch: {line}", markup=False, highlight=False, soft_wrap=True
        )

    def loading(self, seconds: float, last: str) -> None:
        if time.monotonic() - self._last_line >= LINE_INTERVAL:
            self._last_line = time.monotonic()
            line = _loading(seconds, last)
            self.message(textwrap.shorten(line, LINE_WIDTH, placeholder="..."))

    def check_started(self, name: str, number: int, total: int) -> None:
        """Check `number` of `total` starts."""

    def check_ended(self, result: Result) -> None:
        self.message(f"{result.name}: {result.outcome.value} ({result.seconds:.1f} s)")


class SpinnerProgress(Progress):
    """Shows progress in the last line of a terminal."""

    def __init__(self, console: Console, status: Status) -> None:
        super().__init__(console)
        self._status = status

    def message(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def loading(self, seconds: float, last: str) -> None:
        self._show(_loading(seconds, last))

    def check_started(self, name: str, number: int, total: int) -> None:
        self._show(f"running check {name} ({number} of {total})")

    def check_ended(self, result: Result) -> None: ...

    def _show(self, line: str) -> None:
        text = Text(line, no_wrap=True, overflow="ellipsis")
        text.truncate(max(10, self._console.width - 4), overflow="ellipsis")
        self._status.update(text)


def _loading(seconds: float, last: str) -> str:
    message = f": {last.strip()}" if last.strip() else ""
    return f"SGLang is loading, {seconds:.0f} s{message}"


@contextmanager
def progress_on(console: Console) -> Iterator[Progress]:
    """Show progress with a spinner if the console is a terminal, otherwise as lines."""
    if console.is_terminal and not console.is_dumb_terminal:
        with console.status("") as status:
            yield SpinnerProgress(console, status)
    else:
        yield Progress(console)
