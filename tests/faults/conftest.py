"""Counts of what was injected and mended, printed at the end of the suite."""

from __future__ import annotations

from collections import Counter

import pytest

_COUNTS = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_COUNTS] = Counter()


@pytest.fixture
def count(request: pytest.FixtureRequest) -> Counter[str]:
    """Things counted over the whole run, by what they are called."""
    return request.config.stash[_COUNTS]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if counts := config.stash[_COUNTS]:
        terminalreporter.section("faults")
        for what, number in sorted(counts.items()):
            terminalreporter.write_line(f"{number:6} {what}")
