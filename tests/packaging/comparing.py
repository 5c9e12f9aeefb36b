"""Compare output that a document shows with real output."""

from __future__ import annotations

import difflib
import re
from typing import Any

ELLIPSIS = re.compile(r"…|\.\.\.")

# Patterns that differ between runs or machines, and their placeholders.
MASKS = (
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min)\b"), "<time>"),
    (re.compile(r"\b\d(\.\d+)?e-\d+\b"), "<tiny>"),
    (re.compile(r"\bpython3\.\d+\b"), "python3"),
    # An absolute path: only its end is compared.
    (re.compile(r"(?<![\w.:/])(/[\w.+…-]+)+/(?=[\w.+…-])"), "/"),
    (re.compile(r"[ \t]+"), " "),
)


def unlike(shown: str, seen: str) -> str:
    """Describe how an output differs from the shown one; empty if it does not.

    An ellipsis stands for anything in its line; alone in a line, for any lines. Blank
    lines and the width of columns do not count, nor does what `MASKS` covers.
    """
    shown_lines, seen_lines = _lines(shown), _lines(seen)
    pattern = "".join(
        r"(?:.*\n)*?"
        if ELLIPSIS.fullmatch(line)
        else ".*".join(map(re.escape, ELLIPSIS.split(line))) + "\n"
        for line in shown_lines
    )
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in seen_lines)):
        return ""
    diff = difflib.unified_diff(shown_lines, seen_lines, "shown", "seen", lineterm="")
    return "\n".join(diff)


def _lines(text: str) -> list[str]:
    for mask, stand_in in MASKS:
        text = mask.sub(stand_in, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def unlike_json(shown: Any, seen: Any, where: str = "$") -> str:
    """Describe where a JSON value differs from the shown one; empty if nowhere.

    Fields that are not shown do not count, nor do entries of a list after "…". A number
    with a fraction is compared to the digits shown.
    """
    if isinstance(shown, dict) and isinstance(seen, dict):
        if missing := shown.keys() - seen.keys():
            return f"{where} lacks {missing}"
        pairs = [(shown[key], seen[key], f"{where}.{key}") for key in shown]
    elif isinstance(shown, list) and isinstance(seen, list):
        if shown[-1:] == ["…"]:
            shown = shown[:-1]
            seen = seen[: len(shown)]
        if len(shown) != len(seen):
            return f"{where} has {len(seen)} entries, shown are {len(shown)}"
        pairs = [
            (*both, f"{where}[{i}]")
            for i, both in enumerate(zip(shown, seen, strict=True))
        ]
    else:
        alike = (type(shown), shown) == (type(seen), seen)
        if isinstance(shown, float) and isinstance(seen, float):
            digits = len(str(shown).partition(".")[2])
            # Half a digit for the rounding, a thousandth for the arithmetic of the CPU.
            alike = abs(shown - seen) <= max(0.6 * 10**-digits, 1e-3)
        return "" if alike else f"{where} is {seen!r}, shown is {shown!r}"
    return next(filter(None, (unlike_json(*pair) for pair in pairs)), "")


def is_excerpt(shown: str, whole: str) -> bool:
    """True if all lines of an excerpt are in the text, in order."""
    lines = iter(_lines(whole))
    return all(ELLIPSIS.fullmatch(line) or line in lines for line in _lines(shown))
