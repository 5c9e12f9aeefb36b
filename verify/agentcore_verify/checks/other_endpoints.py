"""/v1/completions and /v1/messages answer as ever, without the new fields.

They share code with the chat endpoint. Streaming or not, they give text, end as they
should and have no field of the patches. If not, other users of the same server break.
"""

from __future__ import annotations

import json
from typing import Any

from agentcore_verify.client import ClientError
from agentcore_verify.invariants import letters
from agentcore_verify.results import Failed
from agentcore_verify.scripted_model import line
from agentcore_verify.subject import Subject

PATCHES = ()

FIELDS = ('"token_ids"', '"prompt_token_ids"')


def check(subject: Subject) -> str:
    _assert_completions(subject)
    _assert_messages(subject)
    return "/v1/completions and /v1/messages, streamed and not"


def _assert_completions(subject: Subject) -> None:
    body = {
        "prompt": line("plain").question,
        "max_tokens": 32,
        "temperature": 0,
        "logprobs": 1,
    }
    whole = _events(subject, "/v1/completions", body)
    streamed = _events(subject, "/v1/completions", {**body, "stream": True})
    said = [
        "".join(choice["text"] for event in events for choice in event["choices"])
        for events in (whole, streamed)
    ]
    _assert_same("/v1/completions", *said)


def _assert_messages(subject: Subject) -> None:
    body = {"messages": line("plain").messages, "max_tokens": 64, "temperature": 0}
    whole = _events(subject, "/v1/messages", body)
    streamed = _events(subject, "/v1/messages", {**body, "stream": True})
    parts = ("thinking", "text")
    one = [block.get(part) or "" for block in whole[0]["content"] for part in parts]
    deltas = [event.get("delta") or {} for event in streamed]
    other = [delta.get(part) or "" for delta in deltas for part in parts]
    _assert_same("/v1/messages", "".join(one), "".join(other))
    if not streamed or streamed[-1].get("type") != "message_stop":
        raise Failed("/v1/messages, streaming: the stream does not end as it should.")


def _assert_same(path: str, whole: str, streamed: str) -> None:
    if letters(whole) != letters(streamed):
        raise Failed(f"{path}: says {streamed!r} streaming, and {whole!r} else.")


def _events(subject: Subject, path: str, body: dict[str, Any]) -> list[Any]:
    """The response, or the events of the stream; none of them with our fields."""
    where = f"{path}, {'' if body.get('stream') else 'non-'}streaming"
    try:
        with subject.post(path, {"model": subject.model, **body}) as response:
            text = response.content.decode()
    except (ClientError, UnicodeDecodeError) as error:
        raise Failed(f"{where}: {error}") from error
    for field in FIELDS:
        if field in text:
            raise Failed(f"{where}: the answer has {field}.")
    try:
        if not body.get("stream"):
            return [json.loads(text)]
        return [
            json.loads(data)
            for line in text.splitlines()
            if (data := line.removeprefix("data:").strip()) != line.strip()
            and data != "[DONE]"
        ]
    except ValueError:
        raise Failed(f"{where}: not JSON: {text[:200]}") from None
