"""Resources that one process of a test run makes for all its processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def once(made: Path, make: Callable[[Path], None]) -> Path:
    """Return the file or folder `made`; the first process makes it, the others wait.

    `make` is given the path to write to, which is renamed once it is complete.
    """
    making = Path(f"{made}.making")
    with FileLock(f"{made}.lock"):
        if not made.exists():
            make(making)
            making.rename(made)
    return made
