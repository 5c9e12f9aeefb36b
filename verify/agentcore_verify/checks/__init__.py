"""What is checked: one module per check, named as the check.

A check module has

- a docstring: what it is about in one line, then what must hold, and what a failure
  means for a trainer;
- `PATCHES`, the patches of SGLang that it needs;
- `check(subject)`, which returns what it has seen in a few words, or raises one of the
  exceptions in `results` that end a check otherwise.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

from agentcore_verify.results import NotPassed, Outcome, Result
from agentcore_verify.subject import Subject

NAMES = (
    "determinism",
    "non-streaming",
    "streaming",
    "same-ids",
    "held-back-text",
    "logprobs",
    "tools",
    "reasoning",
    "choices",
    "stop",
    "tito",
    "customized-info",
    "opt-out",
    "other-endpoints",
    "concurrency",
    "interruption",
    "openai-client",
    # Last: to a server that does not refuse what it must, this can be the end.
    "refusals",
)
"""The names of all checks, in the order in which they run."""


@dataclass(frozen=True)
class Check:
    """A check: `summary` is what it is about, `text` all that its docstring says."""

    name: str
    summary: str
    text: str
    patches: tuple[str, ...]
    check: Callable[[Subject], str]

    def run(self, subject: Subject) -> Result:
        """Run it; whatever it raises on purpose is in the result."""
        began = time.monotonic()
        try:
            result = Result(self.name, Outcome.PASSED, self.check(subject))
        except NotPassed as ended:
            result = Result(
                self.name, ended.outcome, str(ended), ended.advice, ended.difference
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            message = f"An answer has not the form that it must have ({what})."
            result = Result(self.name, Outcome.FAILED, message)
        return replace(result, seconds=time.monotonic() - began)


@cache
def get(name: str) -> Check:
    """The check of that name, one of `NAMES`."""
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    text = inspect.cleandoc(module.__doc__ or "")
    return Check(name, text.splitlines()[0], text, module.PATCHES, module.check)


def run(
    names: Sequence[str],
    subject: Subject,
    *,
    missing: Mapping[str, str] | None = None,
    on_start: Callable[[str], None] | None = None,
) -> Iterator[Result]:
    """Run checks one by one.

    Args:
        names: of the checks, as in `NAMES`.
        missing: patches that are not in place, each with the words to say so; a check
            that needs one fails without being run.
        on_start: told the name of each check before it runs.
    """
    for name in names:
        check = get(name)
        if on_start:
            on_start(name)
        lacking = [patch for patch in check.patches if patch in (missing or {})]
        if missing and lacking:
            yield Result(name, Outcome.FAILED, missing[lacking[0]])
        else:
            yield check.run(subject)
