"""Where the time of a run went: by folder, by module, by what was set up."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from typing import Any

import pytest

from agentcore_verify.server import Server

SHOWN = 12
"""Rows of a table that are printed, the longest times first."""

Seconds = Mapping[str, float]


class Timings:
    """Adds up seconds over all processes of a run, and prints them at its end.

    The time of a fixture is its own, without that of the fixtures it asks for. Servers
    are those that the tests' own processes start; a command they run may start more.
    """

    def __init__(self) -> None:
        self._tests: dict[str, dict[str, float]] = defaultdict(_no_seconds)
        self._set_ups: dict[str, float] = defaultdict(float)
        self._servers: list[float] = []

    # In the processes that run tests.

    def pytest_configure(self) -> None:
        Server.start = self._timed(Server.start)  # type: ignore[method-assign]

    def _timed(self, start: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(start)
        def timed(*args: Any) -> None:
            began = time.monotonic()
            start(*args)
            self._servers.append(time.monotonic() - began)

        return timed

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        began = time.monotonic()
        try:
            return (yield)
        finally:
            self._set_ups[fixturedef.argname] += time.monotonic() - began

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["set_ups"] = dict(self._set_ups)
            output["servers"] = self._servers

    # In the process that reports.

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        for name, seconds in output.get("set_ups", {}).items():
            self._set_ups[name] += seconds
        self._servers += output.get("servers", [])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        module = report.nodeid.partition("::")[0]
        process = getattr(report, "worker_id", "this one")
        for by, name in (
            ("folder", module.rpartition("/")[0]),
            ("module", module),
            ("process", process),
        ):
            self._tests[by][name] += report.duration

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        terminalreporter.section("where the time went, in seconds")
        for by, seconds in self._tests.items():
            _print(terminalreporter, f"by {by}", seconds)
        _print(terminalreporter, "by what was set up", self._set_ups)
        if self._servers:
            n, total = len(self._servers), sum(self._servers)
            terminalreporter.write_line(f"{n} servers were started in {total:.0f} s.")


def _no_seconds() -> dict[str, float]:
    return defaultdict(float)


def _print(
    terminalreporter: pytest.TerminalReporter, title: str, seconds: Seconds
) -> None:
    terminalreporter.write_line(f"{title}:")
    longest = sorted(seconds, key=lambda name: -seconds[name])
    for name in longest[:SHOWN]:
        if seconds[name] >= 1:
            terminalreporter.write_line(f"{seconds[name]:8.1f}  {name}")
