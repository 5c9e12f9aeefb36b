"""The findings of `audit`: what each means, and what to do about it."""

from __future__ import annotations

from typing import Any

from .results import Finding


def _finding(name: str, meaning: str, remedy: str, **more: Any) -> Finding:
    return Finding(name, meaning=meaning, remedy=remedy, **more)


FINDINGS = (
    _finding(
        "ids-missing",
        "The answer has no token IDs: a trainer has to re-tokenize the text.",
        "If the request has `return_token_ids: true`, patch the server, and look for a "
        "router or recorder that drops the IDs. Otherwise send it.",
    ),
    _finding(
        "prompt-ids-missing",
        "The prompt has no token IDs: a trainer has to apply the chat template itself.",
        "Keep `prompt_token_ids` of the response; in a stream it is on the first chunk.",
        unit="turns",
    ),
    _finding(
        "ids-out-of-step",
        "The number of token IDs differs from the server's token count.",
        "Join the IDs of all chunks of a stream, and stop the recorder from cutting them.",
    ),
    _finding(
        "logprobs-missing",
        "The answer has no logprobs: a trainer has to compute or invent them.",
        "If the request has `logprobs: true`, the server or a router lost them: patch the "
        "server. Otherwise send it; messages and responses have them with the token IDs.",
    ),
    _finding(
        "logprobs-padded",
        "Logprobs were filled in: a run of zeros, or -9999.",
        "Find what fills the gaps. Stock SGLang drops logprobs of streams; patch it.",
    ),
    _finding(
        "logprobs-out-of-step",
        "There is not one logprob for each token, or it is the logprob of another token.",
        "Stock SGLang drops logprobs of streams; patch it, and keep all chunks.",
    ),
    _finding(
        "logprobs-not-finite",
        "A logprob is null, not a number, infinite or above 0.",
        "Look for a failing engine or a recorder that writes null; drop these answers.",
    ),
    _finding(
        "text-differs",
        "The token IDs do not decode to the recorded text.",
        "Check that --tokenizer is the served model's. Find what edits texts or IDs.",
    ),
    _finding(
        "drift",
        "Re-tokenizing the text yields other tokens than the model sampled.",
        "Train on the recorded IDs. If you do so, allow drift with --max-drift.",
        page="retokenization",
    ),
    _finding(
        "prefix-broken",
        "The prompt of a turn does not start with the tokens of the previous turn.",
        "Send `required_prefix_token_ids`, or let the server remember conversations.",
        unit="turns",
        page="prefix",
    ),
    _finding(
        "weight-versions-mixed",
        "More than one weight version sampled the answer.",
        "Mask or correct the tokens of older weights, or update between rollouts.",
        page="weight-versions",
    ),
    _finding(
        "weight-version-missing",
        "The answer has no weight version, but other answers of its kind have one.",
        "Keep `metadata` of the response; in a stream it is on the first chunk.",
        page="weight-versions",
    ),
)
"""All findings, in the order of the report."""

BY_TOKENIZER = ("text-differs", "drift")
"""The findings that need a tokenizer."""
