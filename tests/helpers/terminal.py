"""Programs on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import struct
import subprocess
import termios
from collections.abc import Sequence
from contextlib import suppress
from fcntl import ioctl


def shown_on_terminal(command: Sequence[str], columns: int, **env: str) -> str:
    """Return the output of a command, stderr included, on a terminal of this width."""
    # It would count more than the terminal.
    without_size = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**without_size, **env},
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # Linux raises it once all was read.
        while some := os.read(ours, 65536):
            shown += some
    os.close(ours)
    process.wait()
    return shown.decode().replace("\r\n", "\n")
