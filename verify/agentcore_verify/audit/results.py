"""The result of an audit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class State(str, Enum):
    """The outcome of the search for a finding."""

    FOUND = "found"
    CLEAN = "clean"
    TOLERATED = "tolerated"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Example:
    """The first place where something was found.

    Attributes:
        place: the file and the line.
        session: the session of the turn; null if the record names none.
        choice: the index of the answer in the turn.
        seen: what was found there.
    """

    place: str
    session: str | None
    choice: int
    seen: str


@dataclass
class Finding:
    """A defect that recorded rollouts may have, and how many have it.

    Attributes:
        name: the name of the finding.
        state: the outcome; `tolerated` is drift up to --max-drift.
        count: how many have it.
        of: how many were checked for it.
        unit: what was counted, answers or turns.
        tokens: for drift, the number of tokens that differ; else null.
        of_tokens: for drift, the number of tokens that were compared; else null.
        causes: how often each cause was seen; the most frequent first.
        first: the first one; null if there is none.
        meaning: what a trainer would learn from.
        remedy: what to do about it.
        page: the topic that explains it, for `agentcore-patch docs`.
    """

    name: str
    state: State = State.NOT_CHECKED
    count: int = 0
    of: int = 0
    unit: str = "answers"
    tokens: int | None = None
    of_tokens: int | None = None
    causes: dict[str, int] = field(default_factory=dict)
    first: Example | None = None
    meaning: str = ""
    remedy: str = ""
    page: str = "audit"

    @property
    def share(self) -> float:
        """The share of the checked items that have it; for drift, the share of tokens."""
        if self.tokens is not None:
            return self.tokens / self.of_tokens if self.of_tokens else 0.0
        return self.count / self.of if self.of else 0.0


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Attributes:
        files: the files that were read.
        turns: the number of recorded turns, without failed ones.
        failed: the number of requests whose answer was an error.
        answers: the number of answers that are not empty.
        tokens: the number of tokens in these answers.
        compared: the number of turns that were compared with the previous turn.
        unmatched: turns of sessions whose previous turn is not in the recording, or too
            far back.
        tokenizer: the file of the tokenizer; null if none was given.
        max_drift: the share of tokens that may differ.
        seconds: how long it took.
        notes: notes for the reader, a sentence each.
        findings: a row for each finding.
    """

    files: tuple[str, ...]
    turns: int
    failed: int
    answers: int
    tokens: int
    compared: int
    unmatched: int
    tokenizer: str | None
    max_drift: float
    seconds: float
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """True if nothing was found."""
        return not any(row.state is State.FOUND for row in self.findings)

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return 0 if self.clean else 1
