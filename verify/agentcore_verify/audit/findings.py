"""The findings of `audit`: what each means, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A defect that recorded rollouts may have.

    Attributes:
        name: its name in reports.
        meaning: what a trainer would learn from.
        remedy: what to do about it.
        unit: the counted things, answers or turns.
        page: the topic that explains it, for `agentcore-patch docs`.
        needs_tokenizer: whether it can only be found with a tokenizer.
    """

    name: str
    meaning: str
    remedy: str
    unit: str = "answers"
    page: str = "audit"
    needs_tokenizer: bool = False


FINDINGS = (
    Finding(
        "ids-missing",
        "The answer has no token IDs: a trainer has to re-tokenize the text.",
        "If the request has `return_token_ids: true`, patch the server, and look for a "
        "router or recorder that drops the IDs. Otherwise send it.",
    ),
    Finding(
        "prompt-ids-missing",
        "The prompt has no token IDs: a trainer has to apply the chat template itself.",
        "Keep `prompt_token_ids` of the response; in a stream it is on the first chunk.",
        unit="turns",
    ),
    Finding(
        "ids-out-of-step",
        "The number of token IDs differs from the server's token count.",
        "Join the IDs of all chunks of a stream, and stop the recorder from cutting them.",
    ),
    Finding(
        "logprobs-missing",
        "The answer has no logprobs: a trainer has to compute or invent them.",
        "If the request has `logprobs: true`, the server or a router lost them: patch the "
        "server. Otherwise send it; messages and responses have them with the token IDs.",
    ),
    Finding(
        "logprobs-padded",
        "Logprobs were filled in: a run of zeros, or -9999.",
        "Find what fills the gaps. Stock SGLang drops logprobs of streams; patch it.",
    ),
    Finding(
        "logprobs-out-of-step",
        "There is not one logprob for each token, or it is the logprob of another token.",
        "Stock SGLang drops logprobs of streams; patch it, and keep all chunks.",
    ),
    Finding(
        "logprobs-not-finite",
        "A logprob is null, not a number, infinite or above 0.",
        "Look for a failing engine or a recorder that writes null; drop these answers.",
    ),
    Finding(
        "text-differs",
        "The token IDs do not decode to the recorded text.",
        "Check that --tokenizer is the served model's. Find what edits texts or IDs.",
        needs_tokenizer=True,
    ),
    Finding(
        "drift",
        "Re-tokenizing the text yields other tokens than the model sampled.",
        "Train on the recorded IDs. If you do so, allow drift with --max-drift.",
        page="retokenization",
        needs_tokenizer=True,
    ),
    Finding(
        "prefix-broken",
        "The prompt of a turn does not start with the tokens of the previous turn.",
        "Send `required_prefix_token_ids`, or let the server remember conversations.",
        unit="turns",
        page="prefix",
    ),
    Finding(
        "weight-versions-mixed",
        "More than one weight version sampled the answer.",
        "Mask or correct the tokens of older weights, or update between rollouts.",
        page="weight-versions",
    ),
    Finding(
        "weight-version-missing",
        "The answer has no weight version, but other answers of its kind have one.",
        "Keep `metadata` of the response; in a stream it is on the first chunk.",
        page="weight-versions",
    ),
)
"""All findings, in the order of the report."""
