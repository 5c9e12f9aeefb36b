"""Run the command in this process or as a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

COMMAND = [sys.executable, "-m", "agentcore_patches"]


@dataclass(frozen=True)
class Ran:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Return the one JSON document on its standard output."""
        return json.loads(self.out)


Run: TypeAlias = Callable[..., Ran]


def program(
    *args: str, stdout: int | IO[str] = subprocess.PIPE, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as a program, with these variables set."""
    return subprocess.run(
        [*COMMAND, *args],
        env={**os.environ, **env},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
