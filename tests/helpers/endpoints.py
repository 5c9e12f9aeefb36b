"""Raw requests to any endpoint, and raw responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest
import requests

from agentcore_patches.patches.releases import is_between
from agentcore_verify import client
from agentcore_verify.client import HttpError
from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server

Json = dict[str, Any]

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
VLLM_GENERATE = "/inference/v1/generate"

TOOLS_OF: dict[str, list[Json]] = {
    CHAT: list(TOOLS),
    MESSAGES: [
        {
            "name": tool["function"]["name"],
            "description": tool["function"]["description"],
            "input_schema": tool["function"]["parameters"],
        }
        for tool in TOOLS
    ],
    RESPONSES: [{"type": "function", **tool["function"]} for tool in TOOLS],
}
"""The tools of the script, as in requests to these endpoints."""
HISTORY_OF = {CHAT: "messages", MESSAGES: "messages", RESPONSES: "input"}
LIMIT_OF = {CHAT: "max_tokens", MESSAGES: "max_tokens", RESPONSES: "max_output_tokens"}


def send(server: Server, path: str, **body: Any) -> requests.Response:
    """Send a request; return the response, with any status."""
    return requests.post(server.base_url + path, json=body, timeout=60)


def post(server: Server, path: str, **body: Any) -> Json:
    """Send a non-streaming request; return the response's JSON object."""
    with client.post(server.base_url + path, {"model": "default", **body}) as response:
        answer: Json = response.json()
    return answer


def get(server: Server, path: str) -> Any:
    return requests.get(server.base_url + path, timeout=60).json()


def body_to(path: str, n_tokens: int, name: str = "plain", tools: bool = False) -> Json:
    """Return a greedy request to any endpoint, with a line of the script."""
    limit = {"max_tokens": n_tokens, "temperature": 0}
    if path == VLLM_GENERATE:
        return {"token_ids": [5, 6, 7], "sampling_params": limit}
    if path == COMPLETIONS:
        return {"prompt": line(name).question, **limit}
    asked = {HISTORY_OF[path]: line(name).messages, LIMIT_OF[path]: n_tokens}
    return {**asked, "temperature": 0, **({"tools": TOOLS_OF[path]} if tools else {})}


def prompt_of(server: Server, name: str, **more: Any) -> list[int]:
    """Return the prompt IDs that chat makes of a line of the script."""
    body = {"messages": line(name).messages, "temperature": 0, "max_tokens": 1, **more}
    ids: list[int] = post(server, CHAT, **body)["prompt_token_ids"]
    return ids


def stream(server: Server, path: str, **body: Any) -> list[Json]:
    """Send a streaming request; return the events without `[DONE]`."""
    body = {"model": "default", **body, "stream": True}
    with client.post(server.base_url + path, body) as response:
        return events_in(path, response.content.decode())


def events_in(path: str, text: str) -> list[Json]:
    """Return the events of a stream, without the `[DONE]` that ends most of them."""
    data = [
        line.removeprefix("data: ")
        for line in text.split("\n")
        if line.startswith("data: ")
    ]
    if data[-1] == "[DONE]":
        data.pop()
    else:
        assert path in (MESSAGES, RESPONSES)
    return [json.loads(event) for event in data]


def joined(events: list[Json]) -> Json:
    """Join a stream's texts, lists and logprobs by choice; of all else take the last."""
    choices: dict[int, Json] = {}
    whole: Json = {}
    for event in events:
        for piece in event.pop("choices", ()):
            _add(choices.setdefault(piece["index"], {}), piece)
        whole |= {name: value for name, value in event.items() if value is not None}
    return {**whole, "choices": [choice for _, choice in sorted(choices.items())]}


def _add(choice: Json, piece: Json) -> None:
    for name, value in piece.items():
        known = choice.get(name)
        if value is None:
            continue
        if isinstance(value, dict):
            _add(choice.setdefault(name, {}) if known is None else known, value)
        elif name in ("index", "role") or known is None:
            choice[name] = value
        elif isinstance(value, (str, list)):
            choice[name] = known + value


def answers(server: Server, path: str, streaming: bool, **body: Any) -> list[Json]:
    return stream(server, path, **body) if streaming else [post(server, path, **body)]


def openai_client(server: Server) -> Any:
    return openai.OpenAI(
        base_url=f"{server.base_url}/v1",
        api_key="none",
        max_retries=0,
        http_client=httpx.Client(trust_env=False),
    )


@contextmanager
def refused(*words: str) -> Iterator[pytest.ExceptionInfo[HttpError]]:
    """Check that requests in the block are rejected with 400 and these words."""
    with pytest.raises(HttpError) as refusal:
        yield refusal
    assert refusal.value.status == 400
    for word in words:
        assert word in refusal.value.body


def ids_in(events: list[Json]) -> list[int]:
    """Return the token IDs of events, which are on the event or on its choices."""
    return [
        token_id
        for event in events
        for part in event.get("choices", [event])
        for token_id in part.get("token_ids", ())
    ]


def is_traced(path: str, release: str) -> bool:
    """False if the release lacks /v1/messages, or functions in /v1/responses."""
    last = {MESSAGES: "0.5.8", RESPONSES: "0.5.13"}.get(path)
    return last is None or not is_between(release, "", last)


def require_traced(path: str, release: str) -> None:
    if not is_traced(path, release):
        pytest.skip(f"{path} of SGLang {release} is not traced")
