"""Ask a server to prefill token IDs, and for their logprobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import client
from .client import HttpError, Json
from .profiles import at
from .results import Skipped
from .subject import Subject


@dataclass(frozen=True)
class Scored:
    """A prompt as it was prefilled, and the tokens that follow it.

    `logprobs` has, for each ID of the prompt, its logprob and those of the likeliest, by
    ID; it is empty for the first.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[dict[int, float], ...]


def request(subject: Subject, ids: Sequence[int], tokens: int, top: int) -> Json:
    """Return a request that prefills these IDs; Skipped if the profile has none."""
    if not subject.profile.scores:
        raise Skipped("No request of this profile takes a prompt of token IDs.")
    if subject.profile.scores == "/generate":
        return {
            "input_ids": list(ids),
            "sampling_params": {"temperature": 0, "max_new_tokens": tokens},
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": top,
        }
    return {
        "model": subject.model,
        "prompt": list(ids),
        "temperature": 0,
        "max_tokens": tokens,
        "prompt_logprobs": top,
        "return_token_ids": True,
    }


def score(
    subject: Subject, ids: Sequence[int], *, tokens: int = 1, top: int = 0
) -> Scored:
    """Prefill token IDs and generate some more; Skipped if the server cannot."""
    path = subject.profile.scores
    body = request(subject, ids, tokens, top)
    with subject.asking(path):
        try:
            answer = client.post_json(
                f"{subject.base_url}{path}", body, api_key=subject.api_key
            )
        except HttpError as error:
            if error.status == 404:
                raise Skipped(f"The server has no {path}.") from error
            if subject.is_patched or not client.is_refusal(error):
                raise
            raise Skipped(f"{path} refuses a prompt of token IDs: {error}") from error
    try:
        if path == "/generate":
            return _of_generate(answer, ids)
        return _of_completions(answer)
    except (LookupError, TypeError) as error:
        if subject.is_patched:
            raise
        raise Skipped(f"The answer of {path} has no prompt's logprobs.") from error


def _of_generate(answer: Any, ids: Sequence[int]) -> Scored:
    rows: list[Any] = answer["meta_info"]["input_token_logprobs"]
    # SGLang names the vocabulary's last ID 0 here; its logprob is right.
    for row, sent in zip(rows, ids, strict=False):
        row[1] = sent if row[1] == 0 and sent == max(ids) else row[1]
    likeliest = answer["meta_info"].get("input_top_logprobs") or [None] * len(rows)
    return Scored(
        prompt=tuple(row[1] for row in rows),
        tokens=tuple(answer["output_ids"]),
        logprobs=tuple(
            {row[1]: row[0] for row in (own, *(others or ())) if row[0] is not None}
            for own, others in zip(rows, likeliest, strict=True)
        ),
    )


def _of_completions(answer: Any) -> Scored:
    choice = at(answer, "choices.0")
    return Scored(
        prompt=tuple(choice["prompt_token_ids"]),
        tokens=tuple(choice["token_ids"]),
        logprobs=tuple(
            {int(number): entry["logprob"] for number, entry in (row or {}).items()}
            for row in choice["prompt_logprobs"]
        ),
    )
