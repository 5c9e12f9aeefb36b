"""The version of this package, known without reading installed metadata."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__version__ = "0.4.0.dev0"


@cache
def full_version() -> str:
    """Return the version; a development version names the commit of its code.

    In a checkout, git knows the commit. `setup.py` adds it to `__version__` in what it
    builds.
    """
    root = Path(__file__).parents[1]
    if ".dev" not in __version__ or "+" in __version__ or not (root / ".git").exists():
        return __version__
    import subprocess

    describe = ["git", "describe", "--always", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(
            [*describe, "--dirty=.changed"], cwd=root, capture_output=True, text=True
        )
    except OSError:
        return __version__
    commit = done.stdout.strip()
    return f"{__version__}+g{commit}" if commit else __version__
