"""Logprobs mean what a trainer expects: raw, scaled or renormalized.

At a temperature of 0.7 and a top-p of 0.9, two tokens' logprobs at one position differ as
much as in the raw distribution, or by 1 / 0.7 of that if they were scaled; they are
renormalized if those of the tokens that top-p drops are gone. It is only reported, unless
--expect-logprobs names a meaning. If not, a trainer corrects for a policy that was not used.
"""

from __future__ import annotations

from math import exp, isfinite
from statistics import median

from agentcore_verify.audit.sampling import FLOOR
from agentcore_verify.results import Failed, Inconclusive, NotExercised
from agentcore_verify.scoring import score
from agentcore_verify.subject import Subject

RULES = (13,)

MEANINGS = ("raw", "scaled", "renormalized")
TEMPERATURE = 0.7
SAMPLING = {"temperature": TEMPERATURE, "top_p": 0.9}
TOP = 5
APART = 0.5
"""Difference of two logprobs from which their ratio can be told from rounding."""
NEAR = 0.1


def check(subject: Subject) -> str:
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
