"""With logprobs, each chunk has exactly one logprob for each of its token IDs.

They are in the order of the `token_ids` of the chunk, with the tokens, values and
top_logprobs of the non-streaming answer: in text, in reasoning, in tool calls and where
text is held back. If not, a trainer pads missing logprobs with zeros or assigns them to
other tokens, and training goes wrong silently.
"""

from __future__ import annotations

from typing import Any

from agentcore_verify.audit.sampling import is_invented
from agentcore_verify.client import Json
from agentcore_verify.differences import logprob_distance
from agentcore_verify.invariants import assert_whole, both_modes
from agentcore_verify.profiles import TOKEN_ID, as_id
from agentcore_verify.results import Failed, Skipped
from agentcore_verify.subject import Exchange, Subject

RULES = (11, 14)

REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("emoji", {}),
    ("tool", {"tools": True}),
    ("reasoning_then_tool", {"tools": True, "separate_reasoning": True}),
)

FLOAT32_TOLERANCE = 1e-3
TOLERANCE = 0.05
"""Difference between two runs' logprobs that half precision always allows."""
TIMES_NOISE = 10
"""Allowed difference, as a multiple of the one between identical requests."""


def check(subject: Subject) -> str:
    subject.require_logprobs()
    farthest = n_logprobs = 0.0
    for question, options in REQUESTS if subject.is_patched else REQUESTS[:2]:
        whole, streamed = both_modes(subject, question, **options)
        for reply in (whole, streamed):
            with subject.rule(14):
                _assert_finite(reply)
        one, other = (_logprobs(subject, reply) for reply in (whole, streamed))
        n_logprobs += len(one)
        for position, (left, right) in enumerate(zip(one, other, strict=True)):
            n_left, n_right = (
                len(entry.get("top_logprobs") or ()) for entry in (left, right)
            )
            if n_left != n_right or not (n_left or "top_logprobs" in subject.refused):
                raise Failed(
                    f"{streamed.where}: {n_right} top_logprobs at position {position}, "
                    f"but {n_left} in {whole.where}."
                )
        distance = logprob_distance(one, other)
        farthest = max(farthest, distance)
        if distance > (allowed := tolerance(subject)):
            apart = [
                logprob_distance([a], [b]) for a, b in zip(one, other, strict=True)
            ]
            worst = apart.index(max(apart))
            raise Failed(
                f"{streamed.where}: logprobs differ from those of {whole.where} by up to "
                f"{distance:.2g} (allowed: {allowed:.2g}; identical requests differ by "
                f"{subject.noise:.2g}): at position {worst}, {other[worst]['logprob']:.4f} "
                f"instead of {one[worst]['logprob']:.4f}."
            )
    if subject.profile.streams:
        # Without top_logprobs SGLang takes another path.
        assert_whole(subject, subject.stream("cjk", logprobs=True))
    return f"{n_logprobs:.0f} logprobs aligned, within {farthest:.1g}"


def tolerance(subject: Subject) -> float:
    """Return the difference that the logprobs of two runs may have."""
    floor = FLOAT32_TOLERANCE if subject.is_float32 else TOLERANCE
    return max(floor, TIMES_NOISE * subject.noise)


def _logprobs(subject: Subject, reply: Exchange) -> tuple[Json, ...]:
    """Return a reply's logprobs; Failed unless each belongs to the ID at its position."""
    entries = reply.completions[0].logprobs or ()
    named = [as_id(entry["token"]) for entry in entries]
    if all(type(one) is int for one in named):
        texts = [f"{TOKEN_ID}{value}" for value in reply.ids()]
    else:
        texts = subject.decode_all([[value] for value in reply.ids()], special=True)
    for position, (entry, text) in enumerate(zip(entries, texts, strict=True)):
        if entry["token"].strip() != text.strip():
            raise Failed(
                f"{reply.where}: the logprob at position {position} belongs to token "
                f"{entry['token']!r}, but the token ID there is {text!r}."
            )
    return entries


def _assert_finite(reply: Exchange) -> None:
    found = [
        (position, entry["logprob"])
        for completion in reply.completions
        for position, entry in enumerate(completion.logprobs or ())
    ]
    if not found:
        raise Skipped("Answers have no logprobs.")
    for position, value in found:
        if is_invented(value):
            raise Failed(
                f"{reply.where}: the logprob at position {position} is {value}."
            )
