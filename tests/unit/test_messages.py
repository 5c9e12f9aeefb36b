"""Ends of message streams: the errors of chat, and token IDs without an event."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from agentcore_patches.landing.http import messages
from tests.helpers.events import collected, data_of


def test_token_ids_without_an_event_to_carry_them_are_an_error() -> None:
    content = [{"logprob": -0.1}]
    choice = {"index": 0, "token_ids": [1], "logprobs": {"content": content}}
    trace = messages.MessageTrace()
    trace.push(json.dumps({"choices": [choice]}))
    assert trace.stamp(": ping\n\n") == ": ping\n\n"
    with pytest.raises(ValueError, match="all token IDs were sent"):
        trace.end()


def until_error(*lines: str | Exception, closed: list[bool]) -> list[str]:
    async def chat() -> AsyncGenerator[str, None]:
        try:
            for one in lines:
                if isinstance(one, Exception):
                    raise one
                yield one
        finally:
            closed.append(True)

    return collected(messages.until_error(chat()))


def refusal(code: int | None) -> str:
    """Return the line with which a chat stream reports a failure."""
    error = {"object": "error", "message": "too long", "type": "x", "code": code}
    return f"data: {json.dumps({'error': error})}\n\n"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refusal(400), "invalid_request_error"),
        (refusal(404), "not_found_error"),
        (refusal(429), "rate_limit_error"),
        (refusal(500), "api_error"),
        (refusal(503), "overloaded_error"),
        (refusal(None), "api_error"),
        (ValueError("too long"), "invalid_request_error"),
    ],
)
def test_the_stream_ends_at_the_first_error_of_chat(error: Any, kind: str) -> None:
    closed: list[bool] = []
    first = 'data: {"id": "x"}\n\n'
    said = until_error(first, error, "data: [DONE]\n\n", closed=closed)
    assert said[0] == first
    assert said[1].startswith("event: error\n")
    made = {"type": kind, "message": "too long"}
    assert [data_of(one) for one in said[1:]] == [{"type": "error", "error": made}]
    with pytest.raises(KeyError):
        until_error(KeyError("x"), closed=closed)
    assert closed == [True] * 2
