"""Waits for a condition instead of for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Return as soon as `holds()` is true; raise AssertionError at the timeout."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"did not happen within {seconds:.0f} s"
        time.sleep(0.05)
