"""Compare two sequences of token IDs, two texts, or two lists of logprobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

from .client import Json
from .results import Difference, Row

AROUND = 4
"""Tokens shown before and after the first difference."""
TEXT_BEFORE, TEXT_AFTER = 12, 16
"""Characters shown before and after the first difference of two texts."""


def logprob_distance(one: Sequence[Json], other: Sequence[Json]) -> float:
    """The largest difference between two lists of logprobs, top_logprobs included.

    Infinite if their lengths differ. top_logprobs are compared by rank, because two
    tokens of nearly equal probability may change places from run to run.
    """
    if len(one) != len(other):
        return float("inf")
    farthest = 0.0
    for left, right in zip(one, other, strict=True):
        values, others = _values(left), _values(right)
        if len(values) != len(others):
            return float("inf")
        for value, another in zip(values, others, strict=True):
            farthest = max(farthest, abs(value - another))
    return farthest


def first_difference(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the number of items with which both start; they are of one type."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def id_difference(
    left: str,
    one: Sequence[int],
    right: str,
    other: Sequence[int],
    decode: Callable[[Sequence[int]], Sequence[str]] | None = None,
) -> Difference:
    """Two sequences of token IDs around their first difference, each ID with its text.

    `decode` gives the texts of IDs; without it there are none.
    """
    rows = _aligned(one, other)
    ids = sorted({value for _, a, b in rows for value in (a, b) if value is not None})
    shown: dict[int | None, str] = {value: str(value) for value in ids}
    if ids and decode:
        for value, text in zip(ids, decode(ids), strict=True):
            shown[value] += f" {text!r}"
    found = (
        Row(position, shown.get(a, ""), shown.get(b, ""), a == b)
        for position, a, b in rows
    )
    return Difference(left, right, tuple(found))


def text_difference(left: str, one: str, right: str, other: str) -> Difference:
    start = max(0, first_difference(one, other) - TEXT_BEFORE)
    a, b = (text[start : start + TEXT_BEFORE + TEXT_AFTER] for text in (one, other))
    return Difference(left, right, (Row(start, repr(a), repr(b), a == b),))


def _aligned(
    one: Sequence[int], other: Sequence[int]
) -> list[tuple[int, int | None, int | None]]:
    """(position, ID, ID) around the first difference; None where a side has no ID."""
    first = first_difference([*one], [*other])
    start, end = max(0, first - AROUND), first + 4 * AROUND
    left, right = one[start:end], other[start:end]
    rows: list[tuple[int, int | None, int | None]] = []
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for _, a, b, c, d in matcher.get_opcodes():
        for offset in range(max(b - a, d - c)):
            rows.append(
                (
                    start + a + offset,
                    left[a + offset] if a + offset < b else None,
                    right[c + offset] if c + offset < d else None,
                )
            )
    return rows[: 2 * AROUND + 1]


def _values(entry: Json) -> list[float]:
    """The logprob of a token, then its top_logprobs in descending order."""
    alternatives = sorted(
        (top["logprob"] for top in entry.get("top_logprobs") or ()), reverse=True
    )
    return [entry["logprob"], *alternatives]
