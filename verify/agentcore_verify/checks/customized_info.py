"""A custom sampler's per-token metadata is aligned with output_ids, beyond 50 tokens.

The server that this command launches has a sampler that copies each sampled ID into
`meta_info`. These copies equal `output_ids` in every answer and every chunk, for single
requests, batches and concurrent streams. If not, a trainer's own per-token data (logprobs
of another policy, routing) belongs to other tokens.
"""

from __future__ import annotations

import itertools
from typing import Any

from agentcore_verify.checks.registry import check
from agentcore_verify.client import Json
from agentcore_verify.parallel import in_parallel
from agentcore_verify.probe import MIRROR_KEY
from agentcore_verify.results import Failed, Skipped
from agentcore_verify.subject import Subject

N_TOKENS = 120
"""Without streaming, the engine passes its output on every 50 tokens."""

PROMPTS = ("Name many things.", "Say hello.", "Show me emoji.", "What is my name?")


@check()
def customized_info(subject: Subject) -> str:
    request: dict[str, Any] = {
        "sampling_params": {
            "temperature": 0,
            "max_new_tokens": N_TOKENS,
            "ignore_eos": True,
        }
    }
    whole = subject.generate(text=PROMPTS[0], **request)
    if not subject.launched and MIRROR_KEY not in whole["meta_info"]:
        raise Skipped(
            "The server has no mirroring sampler.",
            advice="Leave --base-url out, so that this command launches the server.",
        )
    _assert_aligned(subject, "/generate", whole)
    _assert_all(whole["output_ids"], "/generate")
    for output in subject.generate(text=list(PROMPTS), **request):
        _assert_aligned(subject, "/generate with a batch", output)
        _assert_all(output["output_ids"], "/generate with a batch")

    def stream(prompt: str) -> int:
        return _assert_stream(subject, text=prompt, **request)

    n_chunks = stream(PROMPTS[0]) + sum(in_parallel(stream, PROMPTS))
    return f"{N_TOKENS} values for {N_TOKENS} tokens, aligned in {n_chunks} chunks"


def _assert_stream(subject: Subject, **request: Any) -> int:
    """Check every chunk, and that all tokens arrived; returns the number of chunks."""
    where = "streaming /generate"
    chunks: list[list[int]] = []
    with subject.asking(where):
        for position, chunk in enumerate(subject.post_stream("/generate", request)):
            if "error" in chunk:
                raise Failed(f"{where}: an error event: {chunk['error']}")
            _assert_aligned(subject, f"{where}, chunk {position}", chunk)
            chunks.append(chunk["output_ids"])
    incremental = subject.info.get("stream_output")
    if incremental is None:  # Unknown; a cumulative chunk starts with the last one.
        incremental = any(b[: len(a)] != a for a, b in itertools.pairwise(chunks))
    joined = [value for chunk in chunks for value in chunk]
    _assert_all(joined if incremental else chunks[-1], where)
    return len(chunks)


def _assert_aligned(subject: Subject, where: str, output: Json) -> None:
    ids, mirrored = output["output_ids"], output["meta_info"].get(MIRROR_KEY)
    if mirrored is None:
        raise Failed(
            f"{where}: meta_info has no {MIRROR_KEY} for {len(ids)} output_ids."
        )
    message = (
        f"{where}: meta_info has {len(mirrored)} values of the sampler for {len(ids)} "
        "output_ids, and they differ."
    )
    subject.assert_ids(message, "output_ids", ids, MIRROR_KEY, mirrored)


def _assert_all(ids: list[int], where: str) -> None:
    if len(ids) != N_TOKENS:
        raise Failed(f"{where}: {len(ids)} of {N_TOKENS} tokens arrived.")
