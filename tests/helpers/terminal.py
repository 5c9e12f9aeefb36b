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
    # COLUMNS would override the terminal's width.
    without_size = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    controller, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
    process = subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**without_size, **env},
    )
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # Linux raises EIO at the end of the output.
        while some := os.read(controller, 65536):
            shown += some
    os.close(controller)
    process.wait()
    return shown.decode().replace("\r\n", "\n")
