"""The logprobs of an answer come back when its prompt and its IDs are scored again.

`prompt_token_ids` and `token_ids` are sent back as a prompt of IDs, and each sampled token
must have the logprob that the answer gave it. A lost, swapped or wrong ID, another prompt
than the returned one or a stale cache changes them. If not, a trainer compares its policy
with logprobs of something else.
"""

from __future__ import annotations

from statistics import median

from agentcore_verify.checks.logprobs import tolerance
from agentcore_verify.results import Failed
from agentcore_verify.scoring import score
from agentcore_verify.subject import Exchange, Subject

RULES = (12,)

QUESTIONS = ("plain", "emoji", "second_turn_ada", "long")

ROUNDING = 1.0
"""Difference that half precision allows for one unlikely token."""


def check(subject: Subject) -> str:
    subject.require_logprobs()
    subject.reference("plain")  # Measures the noise.
    n_tokens = worst = 0.0
    for question in QUESTIONS:
        for stream in subject.profile.modes.values():
            neutral = subject.profile.neutral
            reply = subject.ask(question, logprobs=True, stream=stream, **neutral)
            apart = _distances(subject, reply)
            n_tokens += len(apart)
            worst = max(worst, *apart, 0.0)
    return f"{n_tokens:.0f} logprobs scored again, within {worst:.1g}"


def _distances(subject: Subject, reply: Exchange) -> list[float]:
    ids, past = reply.ids(), [*reply.prompt_ids, *reply.ids()]
    given = [entry["logprob"] for entry in reply.completions[0].logprobs or ()]
    scored = score(subject, past)
    message = f"{reply.where}, scored again: other IDs were prefilled than were sent."
    subject.assert_ids(message, "sent", past, "prefilled", scored.prompt)
    again = [
        row[one] for row, one in zip(scored.logprobs[-len(ids) :], ids, strict=True)
    ]
    if len(given) != len(again):
        raise Failed(f"{reply.where}: {len(given)} logprobs for {len(ids)} token IDs.")
    apart = [abs(one - other) for one, other in zip(given, again, strict=True)]
    allowed = tolerance(subject)
    worst = max(apart, default=0.0)
    if worst > (allowed if subject.is_float32 else ROUNDING) or (
        apart and median(apart) > allowed
    ):
        place = apart.index(worst)
        raise Failed(
            f"{reply.where}: the logprob of token {place} is {given[place]:.4f}, but "
            f"{again[place]:.4f} when the prompt and the IDs are scored again."
        )
    return apart
