"""The checks: one module each, with the name of the check.

A check module has

- a docstring: a summary in one line, then what must hold, and what a failure means for
  a trainer;
- `RULES`, the rules of the contract that it judges, if any: without them it is only run
  on a patched SGLang;
- `EXTRA`, the extra that it needs, if it is not of the core;
- `check(subject)`, which returns in a few words what it saw, or raises one of the
  exceptions of `results`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from agentcore_verify.client import ClientError
from agentcore_verify.results import Failed, NotPassed, Result, Skipped
from agentcore_verify.subject import Subject

NAMES = (
    "determinism",
    "non-streaming",
    "streaming",
    "same-ids",
    "held-back-text",
    "logprobs",
    "re-score",
    "logprob-mode",
    "tools",
    "reasoning",
    "choices",
    "stop",
    "tito",
    "prefix",
    "customized-info",
    "opt-out",
    "other-endpoints",
    "other-traces",
    "concurrency",
    "interruption",
    "pauses",
    "weight-versions",
    "vllm-api",
    "images",
    "openai-client",
    # Last: a server that does not reject bad requests may crash.
    "refusals",
)
"""The names of all checks, in the order of running."""


@dataclass(frozen=True)
class Check:
    """A check: `summary` is the first line of its docstring, `text` all of it."""

    name: str
    summary: str
    text: str
    extra: str
    check: Callable[[Subject], str]
    rules: tuple[int, ...] = ()

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
            message = self.check(subject)
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


@cache
def get(name: str) -> Check:
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    text = inspect.cleandoc(module.__doc__ or "")
    extra = getattr(module, "EXTRA", "")
    rules = getattr(module, "RULES", ())
    return Check(name, text.splitlines()[0], text, extra, module.check, rules)
