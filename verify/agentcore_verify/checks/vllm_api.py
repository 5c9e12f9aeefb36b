"""vLLM's /inference/v1/generate gives the tokens and logprobs of /generate.

Whole and streamed, each token has a logprob, under the names that older and newer clients
of vLLM read. A chat is rendered to the prompt that chat prefills. A salt separates the
prefix cache, and fields that cannot be honoured are rejected. If not, a trainer written for
vLLM silently trains on other tokens than the model sampled, or on logprobs of other tokens.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from agentcore_verify import client
from agentcore_verify.checks.logprobs import tolerance
from agentcore_verify.checks.registry import check
from agentcore_verify.client import HttpError, Json
from agentcore_verify.results import Failed, Inconclusive
from agentcore_verify.subject import NOT_DETERMINISTIC, Subject

PATH = "/inference/v1/generate"
N_TOKENS = 48

RENDER = "/v1/chat/completions/render"

TOLD = ("/is_paused", "/get_world_size", "/load", "/liveness", "/weight_info")
"""Paths at which a server describes itself to trainers."""

ROUTES = (
    PATH,
    RENDER,
    *TOLD,
    "/pause",
    "/resume",
    "/abort_requests",
    "/reset_prefix_cache",
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/update_weights",
    "/collective_rpc",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
)
"""All paths of vLLM that a patched server serves."""


@check(extra="vllm-api")
def vllm_api(subject: Subject) -> str:
    prompt = list(subject.reference("long").prompt_ids)
    expected = _native(subject, prompt)
    if _native(subject, prompt)["output_ids"] != expected["output_ids"]:
        raise Inconclusive(
            "/generate: two identical requests got different answers.",
            advice=NOT_DETERMINISTIC,
        )
    body = {
        "model": subject.served_model(),
        "token_ids": prompt,
        "sampling_params": {
            "temperature": 0,
            "max_tokens": N_TOKENS,
            "ignore_eos": True,
            "logprobs": 0,
        },
        "return_token_ids": True,
    }
    whole = subject.post_json(PATH, body)
    _assert_equal(subject, f"non-streaming {PATH}", [whole], prompt, expected)
    url = f"{subject.base_url}{PATH}"
    with subject.asking(f"streaming {PATH}"):
        events = [*client.post_stream(url, body, api_key=subject.api_key)]
    _assert_equal(subject, f"streaming {PATH}", events, prompt, expected)
    _assert_salted(subject, body)
    _assert_refused(subject, body)
    hidden = _hidden(subject)
    if RENDER not in hidden:
        _assert_rendered(subject, prompt)
    for path in TOLD:
        if path not in hidden and not subject.json_at(path):
            raise Failed(f"{path}: there is no answer.")
    message = f"{N_TOKENS} tokens with their logprobs, as from /generate"
    if hidden:
        message += f". A router hides {', '.join(hidden)}"
    return message


def _hidden(subject: Subject) -> list[str]:
    """Return vLLM's paths that a router hides; without a router, raise Failed."""
    # GET starts nothing: at a path for POST, the server itself answers 405.
    hidden = [path for path in ROUTES if subject.get(path).status_code == 404]
    if hidden and subject.launched:
        raise Failed(f"The server does not serve {', '.join(hidden)}.")
    return hidden


def _assert_rendered(subject: Subject, prompt: list[int]) -> None:
    body = {**subject.body("long"), "model": subject.served_model()}
    rendered = subject.post_json(RENDER, body)
    message = f"{RENDER}: the token_ids differ from the prompt_token_ids of chat."
    subject.assert_ids(message, "chat", prompt, RENDER, rendered["token_ids"])


def _native(subject: Subject, prompt: list[int]) -> Json:
    sampling = {"temperature": 0, "max_new_tokens": N_TOKENS, "ignore_eos": True}
    output: Json = subject.generate(
        input_ids=prompt, sampling_params=sampling, return_logprob=True
    )
    return output


def _assert_equal(
    subject: Subject, where: str, events: list[Json], prompt: list[int], expected: Json
) -> None:
    if [e["prompt_token_ids"] for e in events if e.get("prompt_token_ids")] != [prompt]:
        raise Failed(f"{where}: prompt_token_ids are not the token_ids, or not once.")
    choices = [choice for event in events for choice in event["choices"]]
    ids = [token_id for choice in choices for token_id in choice["token_ids"]]
    message = f"{where}: the token_ids differ from the output_ids of /generate."
    subject.assert_ids(message, "/generate", expected["output_ids"], PATH, ids)
    for choice in choices:
        _assert_aligned(where, choice)
    entries = [entry for choice in choices for entry in choice["logprobs"]["content"]]
    rows: Sequence[Any] = expected["meta_info"]["output_token_logprobs"]
    for position, (entry, row) in enumerate(zip(entries, rows, strict=True)):
        if abs(entry["logprob"] - row[0]) > tolerance(subject):
            raise Failed(
                f"{where}: the logprob of token {position} is {entry['logprob']}, and "
                f"{row[0]} from /generate."
            )
    *_, last = choices
    reason = expected["meta_info"]["finish_reason"]["type"]
    if last["finish_reason"] != reason:
        raise Failed(f"{where}: finish_reason is {last['finish_reason']!r}.")
    versions = expected["meta_info"].get("weight_versions")
    if last.get("weight_versions") != versions:
        raise Failed(
            f"{where}: weight_versions are {last.get('weight_versions')}, and {versions} "
            "from /generate."
        )


def _assert_aligned(where: str, choice: Json) -> None:
    """Check that each token has a logprob under its own ID, in both dialects."""
    entries = choice["logprobs"]["content"]
    for name, of_id in (("token_id", int), ("token", "token_id:{}".format)):
        found = [entry.get(name) for entry in entries]
        if found != [of_id(token_id) for token_id in choice["token_ids"]]:
            raise Failed(f"{where}: {name} of the logprobs is not that of token_ids.")


def _assert_salted(subject: Subject, body: Json) -> None:
    """Check that a prompt with a new salt finds nothing in the prefix cache."""
    salted = {**body, "cache_salt": uuid.uuid4().hex}
    answer = subject.post_json(PATH, salted, f"{PATH} with cache_salt")
    n_cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    if n_cached:
        raise Failed(
            f"{PATH}: {n_cached} tokens of a prompt with a new cache_salt came from "
            "the prefix cache."
        )


def _assert_refused(subject: Subject, body: Json) -> None:
    name = "allowed_token_ids"
    sampling = {**body["sampling_params"], name: [1]}
    with subject.asking(f"{PATH} with {name}"):
        try:
            subject.post(PATH, {**body, "sampling_params": sampling}).close()
        except HttpError as error:
            if error.status == 400 and name in error.body:
                return
            raise
    raise Failed(f"{PATH}: {name}, which SGLang cannot honour, was ignored.")
