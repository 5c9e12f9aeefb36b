"""Requests without new fields get the unpatched response, byte for byte."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agentcore_verify import client
from agentcore_verify.scripted_model import STOP_WORD
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.asking import CASES
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    body_to,
    require_traced,
)

# One engine step is slower than any hand-over here, so both servers split chunks
# alike, unless the machine is busy: then both are asked again.
ATTEMPTS = 60

NAMES = [
    "CJK",
    "two tool calls",
    "reasoning, then a tool call",
    "stop by length",
    "n = 2",
    "top_logprobs",
    "usage on every chunk",
]


@pytest.fixture(autouse=True)
def _slow_while_streaming(request: pytest.FixtureRequest, stream: bool) -> None:
    """Slow the server down while streaming; other responses stay in one piece."""
    if stream:
        request.getfixturevalue("slow_engine")


def body_of(server: Server, path: str, body: dict[str, Any]) -> list[str]:
    """Return the response's lines without the values that differ in every request."""
    response = client.post(server.base_url + path, {"model": "default", **body})
    text = response.content.decode()
    for pattern, name in (
        (r'(id)":"(msg_|cmpl-)?[0-9a-f]{24,32}(_[0-9a-f]{32})?"', r'\1":"ID"'),
        (r'"(id|call_id)":"(toolu_|call_)[0-9a-f]+"', r'"\1":"CALL"'),
        (r'"(created|created_at)":\d+', r'"\1":0'),
        (r'"(id|item_id)":"(resp|fc|msg|rs)_[0-9a-f]+"', r'"\1":"ID"'),
        (r'"e2e_latency":[0-9.]+', '"e2e_latency":0'),
        # The last digits of a logprob depend on the rest of the batch.
        (r'("logprob":-?\d+\.\d{3})\d*(e-\d+)?', r"\1"),
        (r"(-\d+\.\d{3})\d+", r"\1"),
    ):
        text = re.sub(pattern, name, text)
    events = text.split("\n\n")
    # Several choices are streamed in any order.
    return sorted(events) if body.get("n", 1) > 1 else events


def assert_same(
    server: Server, vanilla: Server, path: str, body: dict[str, Any]
) -> None:
    """Ask both servers until one response of each is equal to one of the other."""
    # Some releases reject a null flag; a patched server treats it as absent.
    without_null = {key: value for key, value in body.items() if value is not None}
    patched, unpatched = [], []
    for _ in range(ATTEMPTS):
        patched.append(body_of(server, path, body))
        unpatched.append(body_of(vanilla, path, without_null))
        if patched[-1] in unpatched or unpatched[-1] in patched:
            return
    assert patched[-1] == unpatched[-1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_without_token_ids_a_response_equals_the_unpatched_one(
    server: Server, vanilla: Server, name: str, stream: bool
) -> None:
    body = CASES[name].body(logprobs=True, stream=stream, return_token_ids=False)
    assert_same(server, vanilla, CHAT, body)


FLAGS = ("return_token_ids", "return_tokens_as_token_ids")
HELLO = "Say hello."
PROMPTS: dict[str, dict[str, Any]] = {
    "text": {"prompt": f"Here they are: {STOP_WORD}", "logprobs": 2},
    "IDs": {"prompt": [5, 6, 7], "logprobs": 1},
    "echo": {"prompt": HELLO, "echo": True, "logprobs": 1},
    "n = 2 of several": {"prompt": [HELLO, "Show me emoji."], "n": 2},
    "false": {"prompt": HELLO, "logprobs": 1, **dict.fromkeys(FLAGS, False)},
    "null": {"prompt": HELLO, "logprobs": 1, **dict.fromkeys(FLAGS)},
}
OTHERS: dict[tuple[str, str], dict[str, Any]] = {
    (COMPLETIONS, name): {"max_tokens": 12, **asked} for name, asked in PROMPTS.items()
}
for path in (MESSAGES, RESPONSES):
    for name, flags in (
        ("plain", {}),
        ("tool", {"return_token_ids": False}),
        ("emoji", {"return_token_ids": None}),
    ):
        OTHERS[path, name] = {**body_to(path, 100, name, tools=True), **flags}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "name"), OTHERS)
def test_other_endpoints_are_unchanged(
    server: Server, vanilla: Server, release: str, path: str, name: str, stream: bool
) -> None:
    require_traced(path, release)
    body = {
        "model": Subject(vanilla.base_url).served_model(),
        "temperature": 0,
        "stream": stream,
        **OTHERS[path, name],
    }
    assert_same(server, vanilla, path, body)
