"""Turn an exception into an exit code, an error and a hint, without a traceback."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from agentcore_patches._version import __version__
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

    `command` is the command that was typed, as far as is known.
    """
    if isinstance(error, click.Abort) and error.__cause__:
        error = error.__cause__  # click wraps an interrupt in its own exception.
    match error:
        case AgentcoreError():
            return _failure(
                error.kind,
                error.exit_code,
                error.message,
                error.hint,
                details=error.details,
            )
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else command
            hint = f"See `{command} --help`."
            return _failure("usage", error.exit_code, error.format_message(), hint)
        case Interrupted():
            return _failure("interrupted", _INTERRUPTED, f"Interrupted {error}")
        case click.Abort() | KeyboardInterrupt():
            return _failure("interrupted", _INTERRUPTED, "Interrupted.", _IN_PLACE)
        case ModuleNotFoundError(name=str(name)) if not name.startswith("agentcore_"):
            return _failure(
                "usage",
                UsageError.exit_code,
                f"{PROGRAM} needs the module {name}, and {sys.executable} does not have "
                "it.",
                "Install agentcore-patches there with its dependencies.",
            )
    return _failure(
        "bug",
        _BUG,
        f"This is a bug in {PROGRAM} {__version__}: {type(error).__name__}: {error}.",
        f"{_IN_PLACE} Please report the bug, with the output of the same command when "
        f"{DEBUG}=1 is set.",
    )


def _failure(
    kind: FailureKind,
    exit_code: int,
    message: str,
    hint: str = "",
    details: tuple[str, ...] = (),
) -> Failure:
    whole = f"{message} {hint}".rstrip()
    page = "troubleshooting" if kind in _HAS_PAGE else ""
    return Failure(kind, exit_code, whole, hint, details, page)
