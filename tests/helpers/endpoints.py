"""Requests to any endpoint, as they are written, and answers as they came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcore_verify import client
from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server
from tests.helpers.asking import LOGPROB_NOISE

Json = dict[str, Any]


def post(server: Server, path: str, **body: Any) -> Json:
    """The JSON object that answers a request without streaming."""
    with client.post(server.base_url + path, {"model": "default", **body}) as response:
        answer: Json = response.json()
    return answer


def chat_answer(server: Server, name: str, with_tools: bool) -> Json:
    """What chat answers to a line of the script, with its logprobs."""
    return post(
        server,
        "/v1/chat/completions",
        messages=line(name).messages,
        temperature=0,
        max_tokens=700,
        logprobs=True,
        tools=list(TOOLS) if with_tools else None,
    )


def assert_traced_as(answer: Json, chat: Json) -> None:
    """An answer of another endpoint has the IDs and logprobs of the chat answer."""
    [choice] = chat["choices"]
    assert answer["prompt_token_ids"] == chat["prompt_token_ids"]
    assert answer["token_ids"] == choice["token_ids"]
    assert answer["token_logprobs"] == pytest.approx(
        [entry["logprob"] for entry in choice["logprobs"]["content"]],
        abs=LOGPROB_NOISE,
    )


def stream(server: Server, path: str, **body: Any) -> list[Json]:
    """The events that answer a streaming request, without `[DONE]`."""
    body = {"model": "default", **body, "stream": True}
    with client.post(server.base_url + path, body) as response:
        text = response.content.decode()
    data = [
        line.removeprefix("data: ")
        for line in text.split("\n")
        if line.startswith("data: ")
    ]
    return [json.loads(event) for event in data if event != "[DONE]"]
