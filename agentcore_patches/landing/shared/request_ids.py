"""IDs of requests in the engine: the client's `rid`, and a suffix for each request."""

from __future__ import annotations

# Separates a `rid` from its suffix; no client's `rid` contains this character.
SEPARATOR = "\x1f"


def rid_of(engine_rid: str) -> str:
    """Return the client's `rid`."""
    return engine_rid.rpartition(SEPARATOR)[0]
