"""One error class per exit code of the command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

PROGRAM = "agentcore-patch"
"""The name of the command, as errors print it."""

FailureKind: TypeAlias = Literal[
    "usage",
    "unsupported-target",
    "source-conflict",
    "access",
    "server",
    "patch",
    "interrupted",
    "bug",
]
"""Kind of the error in the JSON document, for scripts."""


class AgentcoreError(Exception):
    """Base of every error that this project raises on purpose.

    As a string it is one paragraph: the message, then the hint.

    Attributes:
        message: the error, for people.
        hint: what to do about it; may be empty.
        details: names behind a count in the message, shown with -v.
    """

    exit_code: ClassVar[int]
    kind: ClassVar[FailureKind]

    def __init__(
        self, message: str = "", hint: str = "", details: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, hint, details)
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class UsageError(AgentcoreError):
    """The command or function was called with invalid arguments."""

    exit_code = 2
    kind = "usage"


class UnsupportedTarget(AgentcoreError):
    """There is no SGLang, or its version is not supported."""

    exit_code = 3
    kind = "unsupported-target"


class SourceConflict(AgentcoreError):
    """The sources do not have the expected shape, or were changed."""

    exit_code = 4
    kind = "source-conflict"


class AccessError(AgentcoreError):
    """A file or a Ray cluster cannot be accessed; nothing was changed."""

    exit_code = 5
    kind = "access"


class ServerError(AgentcoreError):
    """The server under verification did not start, or died."""

    exit_code = 6
    kind = "server"


class PatchError(AgentcoreError):
    """A patch module has a mistake; the message names the patch and, if known, the edit."""

    exit_code = 7
    kind = "patch"


class Interrupted(KeyboardInterrupt):
    """An interruption; the message describes the step that was interrupted."""


def refuse_unknown(
    names: Sequence[str], known: Sequence[str], one: str, many: str
) -> None:
    """Raise UsageError unless all names are known; suggest the closest known name.

    Args:
        one, many: noun for the names, in the singular and the plural.
    """
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    import difflib

    spelled = unknown[0].lower().replace("_", "-")
    close = difflib.get_close_matches(spelled, known, n=1)
    meant = f"Did you mean {close[0]}? " if close else ""
    raise UsageError(
        f"There is no {one} named {', '.join(unknown)}.",
        hint=f"{meant}The {many} are {', '.join(known)}.",
    )


def and_list(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
