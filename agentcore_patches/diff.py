"""The diff of two texts of a file."""

from __future__ import annotations

import difflib


def unified_diff(path: str, before: bytes | None, after: bytes | None) -> str:
    """A unified diff for `patch -p1` in the folder that holds `sglang`.

    None stands for a file that does not exist.
    """
    if before == after:
        return ""
    lines = difflib.unified_diff(
        _lines(before or b""),
        _lines(after or b""),
        "/dev/null" if before is None else f"a/sglang/{path}",
        "/dev/null" if after is None else f"b/sglang/{path}",
    )
    ended = (
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in lines
    )
    return "".join(ended)


def _lines(text: bytes) -> list[str]:
    decoded = text.decode("utf-8", errors="backslashreplace")
    *lines, last = decoded.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])
