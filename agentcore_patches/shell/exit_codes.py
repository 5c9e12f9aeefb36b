"""Turn an exception into an exit code, an error and a hint, without a traceback."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from agentcore_patches._version import full_version
from agentcore_patches.errors import (
    PROGRAM,
    AgentcoreError,
    FailureKind,
    Interrupted,
    UsageError,
)

DEBUG = "AGENTCORE_DEBUG"
"""The environment variable that makes the command show the traceback of a bug."""

_INTERRUPTED = 130
_BUG = 70


_HAS_PAGE: frozenset[FailureKind] = frozenset(
    {"unsupported-target", "source-conflict", "access", "server"}
)
_IN_PLACE = f"`{PROGRAM} status` shows what is in place."


@dataclass(frozen=True)
class Failure:
    """The failure of a command.

    Attributes:
        kind: for scripts.
        exit_code: the command's exit code.
        message: the error and what to do about it, in one paragraph.
        hint: the end of the message that says what to do; may be empty.
        details: names behind a count in the message.
        page: the topic of the page about such failures, for `agentcore-patch docs`;
            empty if there is none.
    """

    kind: FailureKind
    exit_code: int
    message: str
    hint: str = ""
    details: tuple[str, ...] = ()
    page: str = ""

    def without_hint(self) -> str:
        """Return the message without the hint."""
        return self.message.removesuffix(self.hint).rstrip()


def failure_of(error: BaseException, command: str = PROGRAM) -> Failure:
    """Describe an exception; an unexpected one is a bug.

    `command` is the command that was typed, as far as is known. Only those of
    agentcore-patch have a page.
    """
    if isinstance(error, click.Abort) and error.__cause__:
        error = error.__cause__  # click wraps an interrupt in its own exception.
    details: tuple[str, ...] = ()
    kind: FailureKind = "interrupted"
    code, hint = _INTERRUPTED, ""
    match error:
        case AgentcoreError(message=message, hint=hint, details=details):
            kind, code = error.kind, error.exit_code
        case click.UsageError():
            kind, code = "usage", error.exit_code
            # click lists choices one a line, and ends some sentences without a full stop.
            message = " ".join(error.format_message().split())
            message += "" if message.endswith((".", "?", "?)")) else "."
            hint = f"See `{error.ctx.command_path if error.ctx else command} --help`."
        case Interrupted():
            message = f"Interrupted {error}"
        case click.Abort() | KeyboardInterrupt():
            message, hint = "Interrupted.", _IN_PLACE
        case ModuleNotFoundError(name=str(name)) if not name.startswith("agentcore_"):
            kind, code = "usage", UsageError.exit_code
            message = (
                f"{PROGRAM} needs the module {name}, and {sys.executable} does not have "
                "it."
            )
            hint = "Install agentcore-patches there with its dependencies."
        case _:
            kind, code = "bug", _BUG
            name = type(error).__name__
            message = f"This is a bug in {PROGRAM} {full_version()}: {name}: {error}."
            hint = (
                f"{_IN_PLACE} Please report the bug, with the output of the same command "
                f"when {DEBUG}=1 is set."
            )
    has_page = kind in _HAS_PAGE and command.startswith(PROGRAM)
    page = "troubleshooting" if has_page else ""
    return Failure(kind, code, f"{message} {hint}".rstrip(), hint, details, page)
