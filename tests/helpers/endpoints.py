"""Requests to any endpoint, as they are written, and answers as they came."""

from __future__ import annotations

import json
from typing import Any

from agentcore_verify import client
from agentcore_verify.server import Server

Json = dict[str, Any]


def post(server: Server, path: str, **body: Any) -> Json:
    """The JSON object that answers a request without streaming."""
    with client.post(server.base_url + path, {"model": "default", **body}) as response:
        answer: Json = response.json()
    return answer


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
