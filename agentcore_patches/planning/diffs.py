"""Unified diffs of the files that a command changes."""

from __future__ import annotations

import io


def unified_diff(path: str, before: bytes | None, after: bytes | None) -> str:
    """Return a unified diff for `patch -p1` in the folder that contains `sglang`.

    None stands for a file that does not exist.
    """
    import difflib

    lines = difflib.unified_diff(
        _lines(before),
        _lines(after),
        "/dev/null" if before is None else f"a/sglang/{path}",
        "/dev/null" if after is None else f"b/sglang/{path}",
    )
    ended = (
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in lines
    )
    return "".join(ended)


def _lines(text: bytes | None) -> list[str]:
    decoded = (text or b"").decode("utf-8", errors="backslashreplace")
    return list(io.StringIO(decoded, newline="\n"))
