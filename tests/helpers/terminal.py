"""Programs on a pseudo-terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pexpect


def shown_on_terminal(command: Sequence[str], columns: int, **env: str) -> str:
    """Return the output of a command, stderr included, on a terminal of this width."""
    # COLUMNS would override the terminal's width.
    without_size = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    child = pexpect.spawn(
        command[0],
        [*command[1:]],
        env={**without_size, **env},
        dimensions=(40, columns),
        encoding="utf-8",
        timeout=60,
    )
    shown: str = child.read().replace("\r\n", "\n")
    child.close()
    return shown
