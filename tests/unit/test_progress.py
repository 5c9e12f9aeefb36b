"""Progress of a run: lines in a log, a spinner on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from agentcore_verify import progress
from agentcore_verify.progress import progress_on
from agentcore_verify.results import Outcome, Result

PASSED = Result("stop", Outcome.PASSED, "all well", seconds=1.25)
LOADING = "Loading [bold]weights  " + 200 * "x"


def console_of(*, terminal: bool, term: str = "xterm") -> tuple[Console, io.StringIO]:
    shown = io.StringIO()
    console = Console(
        file=shown, force_terminal=terminal, width=60, _environ={"TERM": term}
    )
    return console, shown


@pytest.mark.parametrize(("terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_without_a_terminal_each_step_is_a_line(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, term: str
) -> None:
    console, shown = console_of(terminal=terminal, term=term)
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with progress_on(console) as shows:
        assert shows._status is None
        shows.message("Starting SGLang; its log is /tmp/a [x] log " + 60 * "y")
        shows.loading(1.0, "not yet")
        now += progress.LINE_INTERVAL
        shows.loading(12.0, LOADING)
        shows.loading(12.2, "too early")
        now += progress.LINE_INTERVAL
        shows.loading(22.4, "")
        shows.check_started("stop", 1, 2)
        shows.check_ended(PASSED)
    first, *lines = shown.getvalue().splitlines()
    assert first.endswith("/tmp/a [x] log " + 60 * "y")
    assert lines == [
        "agentcore-patch: SGLang is loading, 12 s: Loading [bold]weights...",
        "agentcore-patch: SGLang is loading, 22 s",
        "agentcore-patch: stop: passed (1.2 s)",
    ]


def test_on_a_terminal_a_spinner_shows_the_current_step() -> None:
    console, shown = console_of(terminal=True)
    with progress_on(console) as shows:
        assert shows._status
        shows.message("SGLang is ready [x]")
        shows.loading(12.0, LOADING)
        loading = shows._status.status
        shows.check_started("stop", 1, 2)
        running = shows._status.status
        shows.check_ended(PASSED)
    assert "SGLang is ready [x]\n" in shown.getvalue()
    assert str(loading).startswith("SGLang is loading, 12 s: Loading [bold]weights")
    assert len(str(loading)) == console.width - 4
    assert str(running) == "running check stop (1 of 2)"
    assert "agentcore-patch" not in shown.getvalue()
