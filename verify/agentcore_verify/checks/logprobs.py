"""Checks of logprobs: one for each ID, that of its token, and of a known meaning."""

from __future__ import annotations

from math import exp, isfinite
from statistics import median
from typing import Any

from agentcore_verify.audit.sampling import FLOOR, is_invented
from agentcore_verify.checks.registry import check
from agentcore_verify.client import Json
from agentcore_verify.differences import logprob_distance
from agentcore_verify.invariants import assert_whole, both_modes
from agentcore_verify.profiles import TOKEN_ID, as_id
from agentcore_verify.results import Failed, Inconclusive, NotExercised, Skipped
from agentcore_verify.scoring import score
from agentcore_verify.subject import Exchange, Subject

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

ROUNDING = 1.0
"""Difference that half precision allows for one unlikely token."""

MEANINGS = ("raw", "scaled", "renormalized")
TEMPERATURE = 0.7
SAMPLING = {"temperature": TEMPERATURE, "top_p": 0.9}
TOP = 5
APART = 0.5
"""Difference of two logprobs from which their ratio can be told from rounding."""
NEAR = 0.1


@check(11, 14)
def logprobs(subject: Subject) -> str:
    """With logprobs, each chunk has exactly one logprob for each of its token IDs.

    They are in the order of the `token_ids` of the chunk, with the tokens, values and
    top_logprobs of the non-streaming answer: in text, in reasoning, in tool calls and
    where text is held back. If not, a trainer pads missing logprobs with zeros or
    assigns them to other tokens, and training goes wrong silently.
    """
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
            distance = logprob_distance([left], [right])
            farthest = max(farthest, distance)
            if distance > (allowed := tolerance(subject)):
                raise Failed(
                    f"{streamed.where}: logprobs differ from those of {whole.where} at "
                    f"position {position}: {right['logprob']:.4f} instead of "
                    f"{left['logprob']:.4f} (allowed: {allowed:.2g}; identical requests "
                    f"differ by {subject.noise:.2g})."
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
    entries = reply.completions[0].logprobs
    if not entries:
        raise Skipped("Answers have no logprobs.")
    for position, entry in enumerate(entries):
        if is_invented(value := entry["logprob"]):
            raise Failed(
                f"{reply.where}: the logprob at position {position} is {value}."
            )


@check(12, through_router=True)
def re_score(subject: Subject) -> str:
    """The logprobs of an answer come back when its prompt and its IDs are scored again.

    `prompt_token_ids` and `token_ids` are sent back as a prompt of IDs, and each
    sampled token must have the logprob that the answer gave it. A lost, swapped or
    wrong ID, another prompt than the returned one or a stale cache changes them. If
    not, a trainer compares its policy with logprobs of something else.
    """
    subject.require_logprobs()
    subject.reference("plain")  # Measures the noise.
    n_tokens = worst = 0.0
    for question in ("plain", "emoji", "second_turn_ada", "long"):
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


@check(13, through_router=True)
def logprob_mode(subject: Subject) -> str:
    """Logprobs mean what a trainer expects: raw, scaled or renormalized.

    At a temperature of 0.7 and a top-p of 0.9, two tokens' logprobs at one position
    differ as much as in the raw distribution, or by 1 / 0.7 of that if they were
    scaled; they are renormalized if those of the tokens that top-p drops are gone. It
    is only reported, unless --expect-logprobs names a meaning. If not, a trainer
    corrects for a policy that was not used.
    """
    asked = {"logprobs": True, "top_logprobs": TOP, "max_tokens": 96, **SAMPLING}
    subject.require_logprobs("top_logprobs")
    with subject.unless_refused("top_logprobs"):
        reply = subject.ask("long", **asked, **subject.profile.neutral)
    ids = reply.ids()
    scored = score(subject, [*reply.prompt_ids, *ids], top=TOP)
    ratios, sums = [], []
    entries = reply.completions[0].logprobs or ()
    for entry, raw in zip(entries, scored.logprobs[-len(ids) :], strict=True):
        listed = sorted((one["logprob"] for one in entry["top_logprobs"]), reverse=True)
        kept = [one for one in listed if isfinite(one) and one > FLOOR]
        if len(kept) < len(listed):
            sums.append(sum(map(exp, kept)))
        first, second, *_ = sorted(raw.values(), reverse=True)
        if len(kept) > 1 and first - second > APART:
            ratios.append((kept[0] - kept[1]) / (first - second))
    expected = subject.expect_logprobs
    try:
        meaning = _meaning(ratios, sums)
    except Inconclusive as unknown:
        if expected:
            raise
        raise NotExercised(f"Logprobs have no known meaning. {unknown}") from unknown
    if expected and meaning != expected:
        raise Failed(
            f"Logprobs are {meaning}, not {expected}.",
            advice="SGLang: SGLANG_RETURN_ORIGINAL_LOGPROB=1 makes them raw, 0 scaled. "
            "vLLM: --logprobs-mode.",
        )
    return f"logprobs are {meaning}"


def _meaning(ratios: list[float], sums: list[float]) -> str:
    """Return the meaning by the ratios of differences, and the sums where some are gone."""
    if sums:
        if abs(median(sums) - 1) < NEAR:
            return "renormalized"
        raise Inconclusive(f"The kept tokens' probabilities sum to {median(sums):.2f}.")
    if not ratios:
        raise NotExercised("No two tokens of the answer had logprobs far enough apart.")
    for meaning, ratio in (("raw", 1.0), ("scaled", 1 / TEMPERATURE)):
        if abs(median(ratios) - ratio) < NEAR:
            return meaning
    raise Inconclusive(
        f"Logprobs differ by {median(ratios):.2f} of the raw difference."
    )
