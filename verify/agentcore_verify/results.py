"""What a check comes to: an outcome, a word on it, and where two sequences part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

from agentcore_patches.errors import ServerError


class Outcome(str, Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """The engine does not repeat itself, so nothing could be compared."""
    NOT_EXERCISED = "not exercised"
    """The model never went the way that the check is about."""
    SKIPPED = "skipped"
    """It cannot be run on this server."""


@dataclass(frozen=True)
class Row:
    """One place of two sequences side by side; a side that has nothing there is empty."""

    position: int
    left: str
    right: str
    same: bool


@dataclass(frozen=True)
class Difference:
    """Two sequences around the place where they part; `left`, `right`: their names."""

    left: str
    right: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Result:
    """What one check came to.

    Attributes:
        check: its name.
        message: when passed what was seen, otherwise what is wrong and where.
        advice: what to do about it; may be empty.
        seconds: how long it took.
    """

    check: str
    outcome: Outcome
    message: str
    advice: str = ""
    difference: Difference | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """One run of `verify`.

    Attributes:
        target: the server or install that was verified, in words.
        model: its name or path.
        server_args: what the server was launched with; empty if it ran already.
        results: one for each check that was asked for, in order.
        seconds: the whole run, of which the server took `startup` to get ready; None
            if it ran already.
        strict: whether a check that was not exercised counts as failed.
        log: file with the server's output, if there is one to read.
        error: why the run ended early, with no check done or some.
        notes: what else is to be known, one sentence each.
    """

    target: str
    model: str
    server_args: tuple[str, ...]
    results: tuple[Result, ...]
    seconds: float
    startup: float | None = None
    strict: bool = False
    log: Path | None = None
    error: str | None = None
    notes: tuple[str, ...] = ()

    def fails(self, result: Result) -> bool:
        """Whether a result is one that the whole run fails by."""
        bad = {Outcome.FAILED, Outcome.INCONCLUSIVE}
        if self.strict:
            bad.add(Outcome.NOT_EXERCISED)
        return result.outcome in bad

    @property
    def exit_code(self) -> int:
        """What the command ends with."""
        if self.error is not None:
            return ServerError.exit_code
        return 0 if self.passed else 1

    @property
    def passed(self) -> bool:
        """Whether something was proven and nothing speaks against it."""
        return (
            self.error is None
            and not any(map(self.fails, self.results))
            and any(result.outcome is Outcome.PASSED for result in self.results)
        )


class NotPassed(Exception):
    """Ends a check with another outcome than `passed`; the message says why."""

    outcome: ClassVar[Outcome]

    def __init__(
        self, message: str, *, advice: str = "", difference: Difference | None = None
    ) -> None:
        super().__init__(message)
        self.advice = advice
        self.difference = difference


class Failed(NotPassed):
    """Something that must hold does not."""

    outcome = Outcome.FAILED


class Inconclusive(NotPassed):
    """Two equal requests got different answers."""

    outcome = Outcome.INCONCLUSIVE


class NotExercised(NotPassed):
    """The model did nothing that the check is about."""

    outcome = Outcome.NOT_EXERCISED


class Skipped(NotPassed):
    """The server lacks what the check needs, a launch option for instance."""

    outcome = Outcome.SKIPPED
