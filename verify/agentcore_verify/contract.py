"""The contract of a token-exact server: numbered rules, and what checks saw of each.

The numbers never change once they are published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .results import (
    VERDICTS,
    Failed,
    Inconclusive,
    LevelResult,
    NotExercised,
    NotPassed,
    Outcome,
    RuleResult,
    Skipped,
)


@dataclass(frozen=True)
class Rule:
    number: int
    level: str
    text: str


_TEXTS = """
1 ids: Each sampled token appears exactly once, in order, the stop token included.
2 ids: The number of token IDs equals the number of tokens that `usage` counts.
3 ids: The prompt's IDs are those that were prefilled.
4 ids: A stream, joined, equals the non-streaming answer.
5 ids: No text arrives before its IDs.
6 ids: With n > 1, each choice has its own IDs.
7 ids: Stop strings, stop tokens and `max_tokens` end the IDs where generation ended.
8 ids: Tool calls and reasoning have their IDs.
9 ids: Concurrent streams do not mix.
10 ids: After an abort or a disconnect, the IDs so far are an exact prefix, and the server
   keeps serving.
11 logprobs: There is one logprob per ID, in order, on the same chunk.
12 logprobs: Logprobs belong to the returned IDs after the returned prompt.
13 logprobs: It is known what a logprob means: raw, scaled by the temperature, or
   renormalized over the tokens that top-p and top-k keep.
14 logprobs: No logprob is padded, null, above zero or not finite.
15 token-in: A prompt given as IDs is prefilled unchanged.
16 token-in: IDs that are negative, beyond the vocabulary, none or too many get a 400, and
   the server keeps serving.
17 turns: The next turn's prompt starts with the tokens of the previous turns.
18 weights: Each token names the weights that sampled it.
19 weights: No prompt uses KV cache that older weights computed.
"""

PARTS = {8: ("tools", "reasoning")}
"""Rules that hold only if each of these checks saw its part, or cannot ask for it."""

RULES = tuple(
    Rule(int(number), level, " ".join(text.split()))
    for number, level, text in re.findall(r"(?m)^(\d+) (\S+): (.*(?:\n .*)*)", _TEXTS)
)

LEVELS = tuple(dict.fromkeys(rule.level for rule in RULES))


class Ledger:
    """The evidence of the checks on each rule."""

    def __init__(self) -> None:
        self._evidence: list[tuple[str, int, NotPassed | str]] = []
        """Each with its check, its rule, and what was seen or why it was not."""
        self._began = 0
        """The number of what was noted before the check that runs now."""
        self._check = ""
        self._rules: tuple[int, ...] = ()
        """The check that runs now, and its rules; without one, failures are raised."""
        self._main = 0
        """The rule that it is about now; 0 if it is about none."""
        self.first: Failed | None = None
        """The first failure in the check that runs now."""

    def begin(self, rules: tuple[int, ...], check: str) -> None:
        """Begin a check; its own failures are those of its first rule."""
        self._check, self._rules, self.first = check, rules, None
        self._main = rules[0] if rules else 0
        self._began = len(self._evidence)

    def turn_to(self, number: int) -> None:
        """Continue the check with another of its rules."""
        self._hold("")
        self._main = number

    def end(self, ended: NotPassed | None, seen: str = "") -> None:
        if ended is None:
            self._hold(seen)
        for number in (self._main,) if isinstance(ended, Failed) else self._rules:
            if ended:
                self._note(number, ended)
        self._check = ""

    def _hold(self, seen: str) -> None:
        """Note that the main rule holds, unless a part of this check was not judged."""
        own = self._evidence[self._began :]
        if not any(n == self._main and isinstance(e, NotPassed) for _, n, e in own):
            self._note(self._main, seen)

    @contextmanager
    def rule(self, number: int) -> Iterator[None]:
        """Judge a rule by a part of a check; the check goes on after a failure.

        In a check of a single other rule, a failure is that rule's, unless this one failed
        before: requests of a special kind then break what holds for simple ones.
        """
        try:
            yield
        except (NotExercised, Skipped) as ended:
            self._note(number, ended)
        except Failed as ended:
            if not self._check:
                raise
            failed = (end for _, n, end in self._evidence if n == number)
            if len(self._rules) == 1 and not any(isinstance(e, Failed) for e in failed):
                [number] = self._rules
            self._note(number, ended)
        else:
            self._note(number, "")

    def _note(self, number: int, end: NotPassed | str) -> None:
        self._evidence.append((self._check, number, end))
        if isinstance(end, Failed):
            self.first = self.first or end

    def results(self, levels: tuple[str, ...]) -> tuple[RuleResult, ...]:
        return tuple(self._result(rule) for rule in RULES if rule.level in levels)

    def _result(self, rule: Rule) -> RuleResult:
        more = {"number": rule.number, "level": rule.level, "rule": rule.text}
        end = self._verdict(rule) or rule.text
        return RuleResult.of(f"{rule.number} {rule.level}", end, **more)

    def _verdict(self, rule: Rule) -> NotPassed | str:
        """Return the first failure, else the first of what weighs most."""
        found = [(check, end) for check, n, end in self._evidence if n == rule.number]
        for kind in (Failed, Inconclusive, str, NotPassed):
            ends = [(check, end) for check, end in found if isinstance(end, kind)]
            if ends and kind is str and rule.number in PARTS:
                return _joined(PARTS[rule.number], found)
            if ends:
                return ends[0][1]
        return NotExercised("No check of this run is about it.")


def _joined(
    parts: tuple[str, ...], found: Sequence[tuple[str, NotPassed | str]]
) -> NotPassed | str:
    """Return what was seen of each part: one that is unsupported is not needed."""
    ends: dict[str, NotPassed | str] = dict.fromkeys(parts, NotExercised("not run"))
    ends.update((check, end) for check, end in found if check in parts)
    seen = "; ".join(
        f"{part}: {VERDICTS[end.outcome]}: {end}"
        if isinstance(end, NotPassed)
        else f"{part}: {end}"
        for part, end in ends.items()
    )
    for end in ends.values():
        if isinstance(end, NotExercised):
            return NotExercised(seen, advice=end.advice)
    return seen


def level_of(level: str, results: tuple[RuleResult, ...]) -> LevelResult:
    own = [result for result in results if result.level == level]
    for result in own:
        if result.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE):
            return LevelResult(level, "not token-exact", result.number)
    holds = any(result.outcome is Outcome.PASSED for result in own)
    return LevelResult(level, "token-exact" if holds else "not offered", None)
