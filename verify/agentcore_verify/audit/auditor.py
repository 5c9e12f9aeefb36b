"""Inspect recorded turns one by one, and count the findings."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from . import drift, sampling
from .findings import BY_TOKENIZER, FINDINGS
from .prefixes import Prefixes
from .results import Audit, Example, Finding, State
from .tokens import Tokens
from .turns import Turn

UNVERSIONED = "weight-version-missing"


class Auditor:
    """Counts the findings of turns; its memory does not grow with their number."""

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens
        self._found = {one.name: replace(one, causes=Counter()) for one in FINDINGS}
        self._prefixes = Prefixes(tokens)
        self._turns = self._failed = self._answers = self._n_tokens = 0
        self._compared = self._differing_tokens = self._compared_tokens = 0
        self._versioned: Counter[str] = Counter()
        """Number of answers with a weight version, by shape."""
        self._unversioned: dict[str, Example] = {}
        """The first answer without a weight version, by shape."""
        self._start = time.monotonic()

    def add(self, turn: Turn, place: str, source: str = "") -> None:
        """Inspect one turn. `source` is the file: sessions of two files are different ones."""
        if turn.error:
            self._failed += 1
            return
        self._turns += 1

        def note(name: str, seen: str, cause: str = "", choice: int = 0) -> Example:
            finding, example = (
                self._found[name],
                Example(place, turn.session, choice, seen),
            )
            finding.count += 1
            finding.first = finding.first or example
            if cause:
                finding.causes[cause] = finding.causes.get(cause, 0) + 1
            return example

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
                example = note(UNVERSIONED, "", turn.shape, choice)
                self._unversioned.setdefault(turn.shape, example)
            if self._tokens is None:
                continue
            if found := drift.compare(answer, turn.stops, self._tokens):
                self._compared += 1
                self._compared_tokens += found.tokens
                self._differing_tokens += found.differing
                if found.finding:
                    note(found.finding, found.seen, found.cause, choice)
        if broken := self._prefixes.add(turn, source):
            note("prefix-broken", *broken)

    def result(
        self,
        files: tuple[str, ...] = (),
        tokenizer: str | None = None,
        max_drift: float = 0.0,
    ) -> Audit:
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
            findings=tuple(
                self._judged(one, max_drift) for one in self._found.values()
            ),
        )

    def _notes(self) -> Iterator[str]:
        if self._failed:
            yield f"{self._failed} failed requests were skipped."
        if self._prefixes.unmatched:
            yield (
                f"{self._prefixes.unmatched} turns were not compared with the previous "
                "turn: it is not in the recording, has no IDs, or is too far back."
            )
        if self._answers and not self._versioned:
            yield "No answer has a weight version."
        if self._tokens is None:
            yield f"Give --tokenizer to check {' and '.join(BY_TOKENIZER)}."

    def _judged(self, finding: Finding, max_drift: float) -> Finding:
        """Return a finding with its state, and the number of the checked."""
        name, of = finding.name, self._answers
        if name in BY_TOKENIZER:
            of = self._compared
        elif name == "prompt-ids-missing":
            of = self._turns
        elif name == "prefix-broken":
            of = self._prefixes.compared
        elif name == "weight-versions-mixed":
            of = self._versioned.total()
        elif name == UNVERSIONED:
            finding = self._unversioned_beside_versioned(finding)
            of = self._versioned.total() + finding.count
        if name == "drift":
            finding = replace(
                finding, tokens=self._differing_tokens, of_tokens=self._compared_tokens
            )
        state = State.FOUND if finding.count else State.CLEAN
        if not of:
            state = State.NOT_CHECKED
        elif finding.count and finding.of_tokens and finding.share <= max_drift:
            state = State.TOLERATED
        causes = dict(Counter(finding.causes).most_common())
        return replace(finding, state=state, of=of, causes=causes)

    def _unversioned_beside_versioned(self, finding: Finding) -> Finding:
        """Leave out the shapes of which no answer has a weight version."""
        causes = {
            shape: count
            for shape, count in finding.causes.items()
            if self._versioned[shape]
        }
        first = next(map(self._unversioned.__getitem__, causes), None)
        return replace(finding, count=sum(causes.values()), causes=causes, first=first)
