"""Checks of one answer that need no tokenizer: IDs, logprobs and weight versions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from .turns import Answer

ZEROS = 8
"""A run of this many logprobs that are exactly 0 was filled in."""

FLOOR = -9999.0
"""vLLM's value for an unknown logprob."""

ABOVE_ZERO = 1e-3
"""A logprob above this is not a rounding error."""

Found = tuple[str, str]
"""The name of a finding, and its example."""


def look_at(answer: Answer) -> Iterator[Found]:
    """Yield the findings of an answer that need no other turn and no tokenizer."""
    if not answer.ids:
        yield "ids-missing", _sizes(answer)
    elif answer.tokens is not None and len(answer.ids) != answer.tokens:
        yield "ids-out-of-step", _sizes(answer)
    if not answer.logprobs:
        yield "logprobs-missing", _sizes(answer)
    else:
        yield from _look_at_logprobs(answer, answer.logprobs)
    if len({span.version for span in answer.versions}) > 1:
        spans = (
            f"version {span.version} from token {span.start}"
            + ("" if span.end is None else f" to {span.end}")
            for span in answer.versions
        )
        yield "weight-versions-mixed", ", ".join(spans)


def _look_at_logprobs(
    answer: Answer, logprobs: Sequence[float | None]
) -> Iterator[Found]:
    expected = len(answer.ids) if answer.ids else answer.tokens
    if expected is not None and len(logprobs) != expected:
        yield "logprobs-out-of-step", _sizes(answer)
    elif answer.ids and answer.named and (place := _first_other(answer)) is not None:
        seen = f"token {place} is {answer.ids[place]}, its logprob belongs to "
        yield "logprobs-out-of-step", f"{seen}{answer.named[place]}"
    if (where := _first_filled(logprobs)) is not None:
        yield "logprobs-padded", _around(logprobs, where)
    for where, value in enumerate(logprobs):
        if value != FLOOR and is_invented(value):
            yield "logprobs-not-finite", _around(logprobs, where)
            return


def is_invented(value: float | None) -> bool:
    """True if no engine computes such a logprob for a token that it samples."""
    return (
        value is None
        or not math.isfinite(value)
        or value > ABOVE_ZERO
        or value <= FLOOR
    )


def _first_other(answer: Answer) -> int | None:
    """Return the first token whose logprob names another ID."""
    pairs = zip(answer.ids or (), answer.named or (), strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), None)


def _first_filled(logprobs: Sequence[float | None]) -> int | None:
    """Return the position of the first logprob that was filled in.

    Rounded logprobs, as in verifiers' records, may all be 0.
    """
    if FLOOR in logprobs:
        return logprobs.index(FLOOR)
    others = [value for value in logprobs if value]
    if others and all(round(value, 4) == value for value in others):
        return None
    start = 0
    for is_zero, run in groupby(logprobs, lambda value: value == 0):
        length = len([*run])
        if is_zero and length >= ZEROS:
            return start
        start += length
    return None


def _sizes(answer: Answer) -> str:
    counted = "" if answer.tokens is None else f"{answer.tokens} tokens counted, "
    return (
        f"{counted}{len(answer.ids or ())} IDs, {len(answer.logprobs or ())} logprobs"
    )


def _around(logprobs: Sequence[float | None], where: int) -> str:
    shown = logprobs[where : where + 3]
    values = ", ".join("null" if one is None else f"{one:g}" for one in shown)
    more = ", ..." if where + 3 < len(logprobs) else ""
    return f"token {where} of {len(logprobs)}: {values}{more}"
