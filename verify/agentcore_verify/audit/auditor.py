"""Inspect recorded turns one by one, and count the findings."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from . import drift, sampling
from .findings import FINDINGS, Finding
from .prefixes import Prefixes
from .results import Audit, Example, Row, State
from .tokens import Tokens
from .turns import Answer, Turn


@dataclass
class _Tally:
    """The count of a finding, its causes, and its first example."""

    count: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    first: Example | None = None


class Auditor:
    """Counts the findings of turns; its memory does not grow with their number."""

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens
        self._tallies = {finding.name: _Tally() for finding in FINDINGS}
        self._prefixes = Prefixes(tokens)
        self._turns = self._failed = self._answers = self._n_tokens = 0
        self._compared = self._compared_tokens = self._differing_tokens = 0
        self._versioned: Counter[str] = Counter()
        """Number of answers with a weight version, by shape."""
        self._unversioned: dict[str, _Tally] = {}
        """Number of answers without a weight version, by shape."""
        self._start = time.monotonic()

    def add(self, turn: Turn, place: str, source: str = "") -> None:
        """Inspect one turn. `source` is the file: sessions of two files are different ones."""
        if turn.error:
            self._failed += 1
            return
        self._turns += 1

        def note(name: str, seen: str, cause: str = "", choice: int = 0) -> None:
            self._note(
                self._tallies[name], Example(place, turn.session, choice, seen), cause
            )

        answers = [
            (choice, answer)
            for choice, answer in enumerate(turn.answers)
            if not answer.is_empty
        ]
        if answers and not turn.prompt:
            note("prompt-ids-missing", "no prompt IDs")
        for choice, answer in answers:
            self._answers += 1
            self._n_tokens += answer.length
            for name, seen in sampling.look_at(answer):
                note(name, seen, choice=choice)
            if answer.versions:
                self._versioned[turn.shape] += 1
            else:
                tally = self._unversioned.setdefault(turn.shape, _Tally())
                self._note(tally, Example(place, turn.session, choice, ""))
            if self._tokens is not None:
                for name, seen, cause in self._text_findings(turn, answer):
                    note(name, seen, cause, choice)
        if found := self._prefixes.add(turn, source):
            note("prefix-broken", found.seen, found.why)

    def _text_findings(self, turn: Turn, answer: Answer) -> list[tuple[str, str, str]]:
        assert self._tokens
        try:
            found = drift.compare(answer, turn.stops, self._tokens)
        except drift.TextDiffers as differs:
            self._compared += 1
            return [("text-differs", str(differs), "")]
        if found is None:
            return []
        self._compared += 1
        self._compared_tokens += found.tokens
        self._differing_tokens += found.differing
        return [("drift", found.seen, found.cause)] if found.differing else []

    @staticmethod
    def _note(tally: _Tally, example: Example, cause: str = "") -> None:
        tally.count += 1
        tally.first = tally.first or example
        if cause:
            tally.causes[cause] += 1

    def result(
        self,
        files: tuple[str, ...] = (),
        tokenizer: str | None = None,
        max_drift: float = 0.0,
    ) -> Audit:
        missing = self._tallies["weight-version-missing"] = _Tally()
        for shape, tally in self._unversioned.items():
            if self._versioned[shape] and tally.first:
                missing.count += tally.count
                missing.causes[shape] += tally.count
                missing.first = missing.first or tally.first
        return Audit(
            files=files,
            turns=self._turns,
            failed=self._failed,
            answers=self._answers,
            tokens=self._n_tokens,
            compared=self._prefixes.compared,
            unmatched=self._prefixes.unmatched,
            tokenizer=tokenizer,
            max_drift=max_drift,
            seconds=time.monotonic() - self._start,
            notes=tuple(self._notes()),
            findings=tuple(self._row(finding, max_drift) for finding in FINDINGS),
        )

    def _notes(self) -> list[str]:
        notes = []
        if self._failed:
            notes.append(f"{self._failed} failed requests were skipped.")
        if self._prefixes.unmatched:
            notes.append(
                f"{self._prefixes.unmatched} turns were not compared with the previous "
                "turn: it is not in the recording, has no IDs, or is too far back."
            )
        if self._answers and not self._versioned:
            notes.append("No answer has a weight version.")
        if self._tokens is None:
            names = [one.name for one in FINDINGS if one.needs_tokenizer]
            notes.append(f"Give --tokenizer to check {' and '.join(names)}.")
        return notes

    def _row(self, finding: Finding, max_drift: float) -> Row:
        tally = self._tallies[finding.name]
        is_drift = finding.name == "drift"
        of = self._checked(finding)
        state = State.FOUND if tally.count else State.CLEAN
        if not of or (finding.needs_tokenizer and self._tokens is None):
            state = State.NOT_CHECKED
        elif is_drift and tally.count:
            allowed = max_drift * self._compared_tokens
            if self._differing_tokens <= allowed:
                state = State.TOLERATED
        return Row(
            name=finding.name,
            state=state,
            count=tally.count,
            of=of,
            unit=finding.unit,
            tokens=self._differing_tokens if is_drift else None,
            of_tokens=self._compared_tokens if is_drift else None,
            causes=dict(tally.causes.most_common()),
            first=tally.first,
            meaning=finding.meaning,
            remedy=finding.remedy,
            page=finding.page,
        )

    def _checked(self, finding: Finding) -> int:
        if finding.needs_tokenizer:
            return self._compared
        unversioned = (self._unversioned.get(shape) for shape in self._versioned)
        versioned = self._versioned.total()
        by_name = {
            "prompt-ids-missing": self._turns,
            "prefix-broken": self._prefixes.compared,
            "weight-versions-mixed": versioned,
            "weight-version-missing": versioned
            + sum(tally.count for tally in unversioned if tally),
        }
        return by_name.get(finding.name, self._answers)
