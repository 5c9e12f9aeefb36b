"""The result of a check and of a run: outcome, message, and where sequences differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from agentcore_patches._version import full_version
from agentcore_patches.errors import ServerError

Made = TypeVar("Made", bound="Result")


class Outcome(str, Enum):
    """Outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """The engine is not deterministic, so two answers could not be compared."""
    NOT_EXERCISED = "not exercised"
    """The model did not do what the check is about."""
    SKIPPED = "skipped"
    """The check cannot be run on this server."""


@dataclass(frozen=True)
class Row:
    """One position of two sequences; empty if a sequence is shorter."""

    position: int
    left: str
    right: str
    same: bool


@dataclass(frozen=True)
class Difference:
    """Two sequences around the first position where they differ.

    `left` and `right` are their names.
    """

    left: str
    right: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Result:
    """The result of one check.

    Attributes:
        name: the check's name.
        message: if it passed, what was seen; otherwise what is wrong and where.
        advice: what to do about it; may be empty.
        seconds: how long it took.
    """

    name: str
    outcome: Outcome
    message: str
    advice: str = ""
    difference: Difference | None = None
    seconds: float = 0.0

    @classmethod
    def of(cls: type[Made], name: str, end: NotPassed | str, **more: Any) -> Made:
        """Return the result from how it ended, or from what was seen if it passed."""
        if isinstance(end, str):
            return cls(name, Outcome.PASSED, end, **more)
        return cls(name, end.outcome, str(end), end.advice, end.difference, **more)


@dataclass(frozen=True)
class RuleResult(Result):
    """The verdict on one rule of the contract.

    Attributes:
        number: the number of the rule.
        level: the level that it belongs to.
        rule: its sentence.
        verdict: `pass`, `fail`, `unsupported` if the server cannot be asked, `not
            exercised`, or `inconclusive` if two identical requests differed.
    """

    number: int = 0
    level: str = ""
    rule: str = ""

    @property
    def verdict(self) -> str:
        return VERDICTS[self.outcome]


VERDICTS = {outcome: outcome.value for outcome in Outcome} | {
    Outcome.PASSED: "pass",
    Outcome.FAILED: "fail",
    Outcome.SKIPPED: "unsupported",
}
"""Names of the outcomes in verdicts on rules."""


@dataclass(frozen=True)
class LevelResult:
    """The verdict on one level of the contract.

    Attributes:
        level: its name.
        verdict: `token-exact`, `not token-exact` or `not offered`.
        failed: the number of the first rule that does not hold; null if there is none.
    """

    level: str
    verdict: str
    failed: int | None


@dataclass(frozen=True)
class Versions:
    """The versions that took part in a run of `verify`.

    Attributes:
        agentcore_patch: the version of this package.
        sglang: SGLang's version; None if unknown.
        patched_by: the agentcore-patch that patched it; None if unpatched or unknown.
    """

    agentcore_patch: str = field(default_factory=full_version)
    sglang: str | None = None
    patched_by: str | None = None


@dataclass(frozen=True)
class Identity:
    """The server that was verified.

    Attributes:
        engine: `SGLang` or `vLLM`; None if it does not say.
        version: its version; None if it does not say.
    """

    engine: str | None = None
    version: str | None = None

    def __str__(self) -> str:
        return " ".join(filter(None, (self.engine or "Server", self.version)))


@dataclass(frozen=True)
class Report:
    """One run of `verify`.

    Attributes:
        target: what was verified, an install or a URL, for people.
        server: its engine and version.
        model: its name or path.
        server_args: the launch options; empty if the server was already running.
        results: one per requested check, in order.
        seconds: duration of the whole run.
        startup: seconds until the server generated tokens; None if it was already running.
        strict: whether a check that was not exercised counts as failed.
        log: file with the server's output; None if there is none.
        error: why the run ended before all checks were done; None if it did not.
        hint: what to do about the error; may be empty.
        notes: further hints, one sentence each.
        unpatched: what to do first, if nothing was checked because the core is not in
            place; else empty.
        versions: what ran.
        patches: the core and the extras in place; None if unknown.
        time: the start of the run, in UTC, in ISO 8601 format.
        device: the server's device; None if unknown or if no server ran.
        contract: the version of the numbered rules.
        profile: how token IDs were asked for; None if no server ran.
        rules: the verdicts on the rules that the checks are about.
        levels: the verdicts on the levels of the rules.
        required: the levels that must hold.
        by_rules: True if rules, not checks, decide: SGLang is not patched, or another
            engine answers.
        expect_logprobs: what logprobs must mean, or the run fails; None: it is only
            reported.
    """

    target: str
    model: str
    server_args: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()
    seconds: float = 0.0
    server: Identity = Identity()
    startup: float | None = None
    strict: bool = False
    log: Path | None = None
    error: str | None = None
    hint: str = ""
    notes: tuple[str, ...] = ()
    unpatched: str = ""
    versions: Versions = Versions()
    patches: tuple[str, ...] | None = None
    time: str = ""
    device: str | None = None
    contract: int = 1
    profile: str | None = None
    rules: tuple[RuleResult, ...] = ()
    levels: tuple[LevelResult, ...] = ()
    required: tuple[str, ...] = ()
    by_rules: bool = False
    expect_logprobs: str | None = None

    def shown(self) -> tuple[Result, ...]:
        """The results that decide: those of the checks, or those on the rules."""
        return self.rules if self.by_rules else self.results

    def is_failure(self, result: Result) -> bool:
        """True if this result makes the whole run fail."""
        failures = {Outcome.FAILED, Outcome.INCONCLUSIVE}
        if self.strict:
            failures.add(Outcome.NOT_EXERCISED)
        return result.outcome in failures

    @property
    def failures(self) -> tuple[Result, ...]:
        """The results that make the whole run fail."""
        return tuple(filter(self.is_failure, self.shown()))

    @property
    def passed(self) -> bool:
        """True if one result passed at least, none failed, and what is required holds."""
        exact = {one.level for one in self.levels if one.verdict == "token-exact"}
        return (
            self.error is None
            and not self.failures
            and any(result.outcome is Outcome.PASSED for result in self.shown())
            and exact.issuperset(self.required)
            and not self.lacks_meaning()
        )

    def lacks_meaning(self) -> bool:
        """True if logprobs must mean something, and rule 13 does not hold."""
        return self.expect_logprobs is not None and not any(
            rule.number == 13 and rule.outcome is Outcome.PASSED for rule in self.rules
        )

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        if self.error is not None:
            return ServerError.exit_code
        return 0 if self.passed else 1


class NotPassed(Exception):
    """Ends a check with an outcome other than `passed`; the message gives the reason."""

    outcome: ClassVar[Outcome]

    def __init__(
        self, message: str, *, advice: str = "", difference: Difference | None = None
    ) -> None:
        super().__init__(message)
        self.advice = advice
        self.difference = difference


class Failed(NotPassed):
    outcome = Outcome.FAILED


class Inconclusive(NotPassed):
    outcome = Outcome.INCONCLUSIVE


class NotExercised(NotPassed):
    outcome = Outcome.NOT_EXERCISED


class Skipped(NotPassed):
    outcome = Outcome.SKIPPED
