"""`/v1/messages` with token IDs: the chat endpoint's, streaming or not."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer

from agentcore_verify.scripted_model import line
from agentcore_verify.server import Server
from tests.helpers.asking import LOGPROB_NOISE
from tests.helpers.endpoints import (
    MESSAGES,
    MESSAGES_TOOLS,
    Json,
    assert_traced_as,
    chat_answer,
    post,
    stream,
)

CASES = {
    "plain": False,
    "emoji": False,
    "silent": False,
    "reasoning": False,
    "two_tools": True,
    "text_then_tool": True,
}
"""Lines of the script, and whether the request has tools."""


def body_of(name: str, **more: Any) -> Json:
    tools = {"tools": MESSAGES_TOOLS} if CASES[name] else {}
    messages = line(name).messages
    return {
        "messages": messages,
        "max_tokens": 700,
        "temperature": 0,
        "return_token_ids": True,
        **tools,
        **more,
    }


@pytest.mark.parametrize("name", CASES)
def test_a_message_has_the_ids_and_logprobs_of_the_chat_answer(
    server: Server, name: str
) -> None:
    chat = chat_answer(server, name, CASES[name])
    message = post(server, MESSAGES, **body_of(name))
    assert_traced_as(message, chat)
    assert message["usage"]["input_tokens"] == len(message["prompt_token_ids"])
    assert message["usage"]["output_tokens"] == len(message["token_ids"])


@pytest.mark.parametrize("name", CASES)
def test_the_events_have_the_ids_behind_them(
    server: Server, tokenizer: Tokenizer, mode: str, name: str
) -> None:
    whole = post(server, MESSAGES, **body_of(name))
    events = stream(server, MESSAGES, **body_of(name))
    assert events[0]["type"] == "message_start"
    assert events[-1]["type"] == "message_stop"
    assert events[0]["message"]["prompt_token_ids"] == whole["prompt_token_ids"]
    token_ids: list[int] = []
    token_logprobs: list[float] = []
    text = ""
    for event in events:
        new = event.get("token_ids", [])
        assert len(new) == len(event.get("token_logprobs", []))
        token_ids += new
        token_logprobs += event.get("token_logprobs", [])
        text += event.get("delta", {}).get("text", "")
        if mode != "reasoning" and not CASES[name]:
            assert tokenizer.decode(token_ids).startswith(text)
    assert token_ids == whole["token_ids"]
    assert token_logprobs == pytest.approx(whole["token_logprobs"], abs=LOGPROB_NOISE)


@pytest.mark.parametrize("flag", [False, None])
def test_a_flag_that_is_false_or_null_adds_nothing(
    server: Server, flag: bool | None
) -> None:
    body = body_of("plain", return_token_ids=flag)
    new = {"prompt_token_ids", "token_ids", "token_logprobs"}
    assert not new & set(post(server, MESSAGES, **body))
    for event in stream(server, MESSAGES, **body):
        assert not new & (set(event) | set(event.get("message", ())))
