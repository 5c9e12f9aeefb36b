"""The table of checks, into which their modules put them."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from agentcore_verify.client import ClientError
from agentcore_verify.results import Failed, NotPassed, Result, Skipped
from agentcore_verify.subject import Subject

Function: TypeAlias = Callable[[Subject], str]


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        rules: the rules of the contract that it judges: without any it is only run on a
            patched SGLang.
        extra: the extra that it needs, if it is not of the core.
        through_router: True if it needs only chat requests, /generate and answers that
            routers pass on.
        text: what must hold, and what a failure means for a trainer.
    """

    name: str
    function: Function
    rules: tuple[int, ...] = ()
    extra: str = ""
    through_router: bool = False
    text: str = ""

    @property
    def summary(self) -> str:
        return self.text.splitlines()[0]

    def without_extra(self, patches: tuple[str, ...] | None) -> Skipped | None:
        """Return why it is skipped if its extra is not among these patches."""
        if not self.extra or patches is None or self.extra in patches:
            return None
        return Skipped(f"The extra {self.extra} is not installed.")

    def run(self, subject: Subject, skipped: Skipped | None = None) -> Result:
        """Run the check, unless it is skipped; the result includes its exceptions."""
        began = time.monotonic()
        message, ended = "", None
        subject.ledger.begin(self.rules, self.name)
        try:
            if skipped:
                raise skipped
            message = self.function(subject)
        except NotPassed as error:
            ended = error
        except ClientError as error:
            ended = Failed(f"A request failed: {error}")
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            ended = Failed(f"An answer does not have the expected form ({what}).")
        subject.ledger.end(ended, message)
        end = subject.ledger.first or ended or message
        return Result.of(self.name, end, seconds=time.monotonic() - began)


CHECKS: dict[str, Check] = {}


def check(
    *rules: int, extra: str = "", through_router: bool = False
) -> Callable[[Function], Function]:
    """Add a function to the table, under its name; it judges these rules."""

    def add(function: Function) -> Function:
        name = function.__name__.replace("_", "-")
        text = function.__doc__ or sys.modules[function.__module__].__doc__ or ""
        text = inspect.cleandoc(text)
        CHECKS[name] = Check(name, function, rules, extra, through_router, text)
        return function

    return add
