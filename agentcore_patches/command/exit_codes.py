"""What the command says of an exception: an exit code and a paragraph, no traceback."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from agentcore_patches._version import __version__
from agentcore_patches.errors import PROGRAM, AgentcoreError, FailureKind, UsageError

DEBUG = "AGENTCORE_DEBUG"
"""The environment variable that makes the command show the traceback of a bug."""

_INTERRUPTED = 130
_BUG = 70


@dataclass(frozen=True)
class Failure:
    """Why a command fails; `kind` is for scripts, `message` for people."""

    kind: FailureKind
    exit_code: int
    message: str


def failure_of(error: BaseException) -> Failure:
    """What to tell of an exception; any that is not expected is a bug."""
    match error:
        case AgentcoreError():
            return Failure(error.kind, error.exit_code, str(error))
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else PROGRAM
            message = f"{error.format_message()} See `{command} --help`."
            return Failure("usage", error.exit_code, message)
        case click.Abort() | KeyboardInterrupt():
            message = f"Interrupted. `{PROGRAM} status` shows what is in place."
            return Failure("interrupted", _INTERRUPTED, message)
        case ModuleNotFoundError(name=str(name)) if not name.startswith("agentcore_"):
            message = (
                f"{PROGRAM} needs the module {name}, and {sys.executable} does not have "
                "it. Install agentcore-patches there with all that it needs."
            )
            return Failure("usage", UsageError.exit_code, message)
    message = (
        f"This is a bug in {PROGRAM} {__version__}: {type(error).__name__}: {error}. "
        f"`{PROGRAM} status` shows what is in place. Please report the bug, with what "
        f"the same command prints when {DEBUG}=1 is set."
    )
    return Failure("bug", _BUG, message)
