"""One error class per exit code of the command."""

from __future__ import annotations

from typing import ClassVar


class AgentcoreError(Exception):
    """Base of every error this project raises on purpose; the message is for people."""

    exit_code: ClassVar[int]


class UsageError(AgentcoreError):
    """The command was called in a way that makes no sense."""

    exit_code = 2


class UnsupportedTarget(AgentcoreError):
    """There is no SGLang there, or one of a version that no patch is written for."""

    exit_code = 3


class SourceConflict(AgentcoreError):
    """The sources do not have the expected shape, or somebody else changed them."""

    exit_code = 4


class AccessError(AgentcoreError):
    """A file, or a Ray cluster, cannot be used as it has to be; nothing was changed."""

    exit_code = 5


class ServerError(AgentcoreError):
    """The server under verification did not start, or died."""

    exit_code = 6
