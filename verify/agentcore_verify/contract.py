"""The contract of a token-exact server: numbered rules, and what checks saw of each.

The numbers never change once they are published.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    """A rule; it holds only if each of its `parts` was seen or cannot be asked for.

    `parts` are names of checks, each about another part of the rule.
    """

    number: int
    level: str
    text: str
    parts: tuple[str, ...] = ()


RULES = (
    Rule(
        1,
        "ids",
        "Each sampled token appears exactly once, in order, the stop token included.",
    ),
    Rule(
        2,
        "ids",
        "The number of token IDs equals the number of tokens that `usage` counts.",
    ),
    Rule(3, "ids", "The prompt's IDs are those that were prefilled."),
    Rule(4, "ids", "A stream, joined, equals the non-streaming answer."),
    Rule(5, "ids", "No text arrives before its IDs."),
    Rule(6, "ids", "With n > 1, each choice has its own IDs."),
    Rule(
        7,
        "ids",
        "Stop strings, stop tokens and `max_tokens` end the IDs where generation ended.",
    ),
    Rule(8, "ids", "Tool calls and reasoning have their IDs.", ("tools", "reasoning")),
    Rule(9, "ids", "Concurrent streams do not mix."),
    Rule(
        10,
        "ids",
        "After an abort or a disconnect, the IDs so far are an exact prefix, and the "
        "server keeps serving.",
    ),
    Rule(11, "logprobs", "There is one logprob per ID, in order, on the same chunk."),
    Rule(
        12, "logprobs", "Logprobs belong to the returned IDs after the returned prompt."
    ),
    Rule(
        13,
        "logprobs",
        "It is known what a logprob means: raw, scaled by the temperature, or "
        "renormalized over the tokens that top-p and top-k keep.",
    ),
    Rule(14, "logprobs", "No logprob is padded, null, above zero or not finite."),
    Rule(15, "token-in", "A prompt given as IDs is prefilled unchanged."),
    Rule(
        16,
        "token-in",
        "IDs that are negative, beyond the vocabulary, none or too many get a 400, and "
        "the server keeps serving.",
    ),
    Rule(
        17,
        "turns",
        "The next turn's prompt starts with the tokens of the previous turns.",
    ),
    Rule(18, "weights", "Each token names the weights that sampled it."),
    Rule(19, "weights", "No prompt uses KV cache that older weights computed."),
)

LEVELS = tuple(dict.fromkeys(rule.level for rule in RULES))


class Ledger:
    """The evidence of the checks on each rule."""

    def __init__(self) -> None:
        self._seen: dict[int, str] = {}
        self._failures: dict[int, Failed] = {}
        self._open: dict[int, NotPassed] = {}
        """The reasons why rules were not judged."""
        self._parts: dict[str, NotPassed | str] = {}
        """The end of each check, or what it saw."""
        self._noted = set[int]()
        """The rules that the check which runs now did not find to hold."""
        self._name = ""
        self._rules: tuple[int, ...] = ()
        """The name and the rules of the check that runs now."""
        self._main: int | None = None
        """The one that it is about now."""
        self.first: Failed | None = None
        """The first failure in the check that runs now."""
        self._runs = False
        """True while a check runs, which notes failures; else they are raised."""

    def begin(self, rules: tuple[int, ...], name: str = "") -> None:
        """Begin a check; its own failures are those of its first rule."""
        self._rules, self.first, self._runs = rules, None, True
        self._name = name
        self._noted = set[int]()
        self._main = rules[0] if rules else None

    def turn_to(self, number: int) -> None:
        """Continue the check with another of its rules."""
        self._hold("")
        self._main = number

    def end(self, ended: NotPassed | None, seen: str = "") -> None:
        self._runs = False
        self._parts[self._name] = ended or seen
        if ended is None:
            self._hold(seen)
        elif isinstance(ended, Failed):
            self.first = self.first or ended
            if self._main is not None:
                self._note(self._main, ended)
        else:
            for number in self._rules:
                self._note(number, ended)

    def _hold(self, seen: str) -> None:
        if self._main is not None and self._main not in self._noted:
            self._seen.setdefault(self._main, seen)

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
            if not self._runs:
                raise
            if len(self._rules) == 1 and number not in self._failures:
                [number] = self._rules
            self._note(number, ended)
        else:
            self._seen.setdefault(number, "")

    def _note(self, number: int, ended: NotPassed) -> None:
        self._noted.add(number)
        if isinstance(ended, Failed):
            self._failures.setdefault(number, ended)
            self.first = self.first or ended
        elif isinstance(ended, Inconclusive) or number not in self._open:
            self._open[number] = ended

    def results(self, levels: tuple[str, ...]) -> tuple[RuleResult, ...]:
        return tuple(self._result(rule) for rule in RULES if rule.level in levels)

    def _result(self, rule: Rule) -> RuleResult:
        ended = self._failures.get(rule.number) or self._open.get(rule.number)
        seen = self._seen.get(rule.number)
        if seen is not None and not isinstance(ended, Failed | Inconclusive):
            ended, seen = self._joined(rule.parts) if rule.parts else (None, seen)
        elif ended is None:
            ended = NotExercised("No check of this run is about it.")
        return RuleResult(
            name=f"{rule.number} {rule.level}",
            outcome=ended.outcome if ended else Outcome.PASSED,
            message=str(ended) if ended else seen or rule.text,
            advice=ended.advice if ended else "",
            difference=ended.difference if ended else None,
            number=rule.number,
            level=rule.level,
            rule=rule.text,
        )

    def _joined(self, parts: tuple[str, ...]) -> tuple[NotPassed | None, str]:
        """Return why a rule of parts is not exercised, or what was seen of each.

        A part that the server cannot be asked for is not needed.
        """
        ends = [self._parts.get(part, NotExercised("not run")) for part in parts]
        said = [
            f"{VERDICTS[end.outcome]}: {end}" if isinstance(end, NotPassed) else end
            for end in ends
        ]
        seen = "; ".join(map("{}: {}".format, parts, said))
        for end in ends:
            if isinstance(end, NotExercised):
                return NotExercised(seen, advice=end.advice), seen
        return None, seen


def level_of(level: str, results: tuple[RuleResult, ...]) -> LevelResult:
    own = [result for result in results if result.level == level]
    for result in own:
        if result.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE):
            return LevelResult(level, "not token-exact", result.number)
    holds = any(result.outcome is Outcome.PASSED for result in own)
    return LevelResult(level, "token-exact" if holds else "not offered", None)
