"""`python -m agentcore_patches`, and the program `agentcore-patch`."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys


def _end(number: int, frame: object) -> None:
    """Exit immediately: nothing needs to be undone yet."""
    os.write(2, b"error: Interrupted.\n")
    os._exit(130)


def run() -> int:
    """Run the command; an interrupt during its import prints no traceback."""
    # Collecting garbage in syntax trees, at exit as well, would take a third of `apply`'s
    # time. Commands that run for long enable it again.
    gc.disable()
    atexit.register(gc.freeze)
    handler = signal.getsignal(signal.SIGINT)
    # Where a shell ignores the signal, for a job in the background, it stays ignored.
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from agentcore_patches.command.cli import main

    signal.signal(signal.SIGINT, handler)
    return main()


if __name__ == "__main__":
    sys.exit(run())
