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
    """Receives the events of a run.

    Prints lines for a log or, on a terminal, shows them after the spinner of `status`.
    """

    def __init__(self, console: Console, status: Status | None = None) -> None:
        self._console = console
        self._status = status
        self._last_line = time.monotonic()

    def message(self, line: str) -> None:
        line = line if self._status else f"agentcore-patch: {line}"
        soft_wrap = not self._status
        self._console.print(line, markup=False, highlight=False, soft_wrap=soft_wrap)

    def loading(self, seconds: float, last: str) -> None:
        message = f": {last.strip()}" if last.strip() else ""
        line = f"SGLang is loading, {seconds:.0f} s{message}"
        if self._status:
            self._show(line)
        elif time.monotonic() - self._last_line >= LINE_INTERVAL:
            self._last_line = time.monotonic()
            self.message(textwrap.shorten(line, LINE_WIDTH, placeholder="..."))

    def check_started(self, name: str, number: int, total: int) -> None:
        """Check `number` of `total` starts."""
        self._show(f"running check {name} ({number} of {total})")

    def check_ended(self, result: Result) -> None:
        if not self._status:
            self.message(
                f"{result.name}: {result.outcome.value} ({result.seconds:.1f} s)"
            )

    def _show(self, line: str) -> None:
        if self._status:
            text = Text(line, no_wrap=True, overflow="ellipsis")
            text.truncate(max(10, self._console.width - 4), overflow="ellipsis")
            self._status.update(text)


@contextmanager
def progress_on(console: Console) -> Iterator[Progress]:
    """Show progress with a spinner if the console is a terminal, otherwise as lines."""
    if console.is_terminal and not console.is_dumb_terminal:
        with console.status("") as status:
            yield Progress(console, status)
    else:
        yield Progress(console)
