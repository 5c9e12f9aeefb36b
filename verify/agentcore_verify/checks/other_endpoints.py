"""/v1/completions and /v1/messages answer as before, without the new fields.

Both endpoints share code with the chat endpoint. Their text is equal with and without
streaming, their streams end as they should, and no answer has a field of the patches.
If not, other users of the server that a trainer runs get broken answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentcore_patches.patches import registry
from agentcore_verify import client
from agentcore_verify.client import ClientError, HttpError, Json
from agentcore_verify.invariants import assert_metadata, keys_in, letters
from agentcore_verify.results import Failed
from agentcore_verify.scripted_model import line
from agentcore_verify.subject import Subject

PATCHES = ()

FIELDS = registry.response_fields()


def check(subject: Subject) -> str:
    _check_completions(subject)
    try:
        _check_messages(subject)
    except NotThere:
        return "/v1/completions, with and without streaming; there is no /v1/messages"
    return "/v1/completions and /v1/messages, with and without streaming"


class NotThere(Exception):
    """The server has no such endpoint: v0.5.8 has no /v1/messages."""


def _check_completions(subject: Subject) -> None:
    path = "/v1/completions"
    body: Json = {
        "prompt": line("plain").question,
        "max_tokens": 32,
        "temperature": 0,
        "logprobs": 1,
    }
    response, events = _ask(subject, path, body, done=True)
    if not subject.loses_text(path):
        _assert_same_text(path, _completion_text([response]), _completion_text(events))


def _check_messages(subject: Subject) -> None:
    path = "/v1/messages"
    body: Json = {
        "messages": line("plain").messages,
        "max_tokens": 64,
        "temperature": 0,
    }
    response, events = _ask(subject, path, body, done=False)
    deltas = [event.get("delta") or {} for event in events]
    if not subject.loses_text(path):
        _assert_same_text(path, _block_text(response["content"]), _block_text(deltas))
    if not events or events[-1].get("type") != "message_stop":
        raise Failed(f"{path}, streaming: the last event is not message_stop.")


def _ask(
    subject: Subject, path: str, body: Json, *, done: bool
) -> tuple[Json, list[Json]]:
    """The response without streaming and the events with it; Failed on a new field.

    `done`: whether the stream ends with `[DONE]`.
    """
    url, body = f"{subject.base_url}{path}", {"model": subject.model, **body}
    try:
        response: Json = client.post_json(url, body, api_key=subject.api_key)
        events = list(client.post_stream(url, body, api_key=subject.api_key, done=done))
    except ClientError as error:
        if isinstance(error, HttpError) and error.status == 404:
            raise NotThere from error
        raise Failed(f"{path}: {error}") from error
    for mode, answers in (("non-streaming", [response]), ("streaming", events)):
        if found := sorted(keys_in(answers) & FIELDS):
            raise Failed(f"{path}, {mode}: the answer has {', '.join(found)}.")
        assert_metadata(subject, f"{path}, {mode}", answers)
    return response, events


def _completion_text(events: Iterable[Json]) -> str:
    return "".join(choice["text"] for event in events for choice in event["choices"])


def _block_text(blocks: Iterable[Json]) -> str:
    return "".join(
        block.get(part) or "" for block in blocks for part in ("thinking", "text")
    )


def _assert_same_text(path: str, whole: str, streamed: str) -> None:
    if letters(whole) != letters(streamed):
        raise Failed(
            f"{path}: the text is {streamed!r} with streaming, but {whole!r} without."
        )
