"""A NaN logprob fails its request with a readable error, on every endpoint."""

from __future__ import annotations

import pytest

from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    Json,
    body_to,
    require_traced,
    send,
)
from tests.helpers.servers import NOT_FINITE, held_requests

pytestmark = pytest.mark.parametrize(
    "mode",
    ["default", "stream-interval", "two-workers-stream-output"],
    indirect=True,
    scope="session",
)

MESSAGE = "The model gave a logprob of nan in the answer."
AT_LENGTH = {"ignore_eos": True}
IDS = {"return_token_ids": True}
REQUESTS: dict[str, tuple[str, Json]] = {
    "chat": (CHAT, {"logprobs": True, **AT_LENGTH}),
    "completions": (COMPLETIONS, {"logprobs": 1, **AT_LENGTH, **IDS}),
    "completions, unpatched fields": (COMPLETIONS, {"logprobs": 1, **AT_LENGTH}),
    "messages": (MESSAGES, IDS),
    "responses": (RESPONSES, IDS),
    "generate": ("/generate", {"text": "Name", "return_logprob": True}),
}


def body_of(path: str, more: Json) -> Json:
    if path == "/generate":
        params = {"temperature": NOT_FINITE, "max_new_tokens": 200, **AT_LENGTH}
        return {**more, "sampling_params": params}
    return {**body_to(path, 200, "long"), "temperature": NOT_FINITE, **more}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_nan_is_a_readable_error(
    server: Server, name: str, stream: bool, release: str
) -> None:
    path, more = REQUESTS[name]
    require_traced(path, release)
    model = Subject(server.base_url).served_model()
    body = {**body_of(path, more), "model": model, "stream": stream}
    answer = send(server, path, **body)
    # A stream that fails at its first token may still have an error status.
    assert stream or answer.status_code >= 400
    assert MESSAGE in answer.text
    assert "null,null" not in answer.text
    assert '"token_logprobs":[null' not in answer.text
    assert held_requests(server) == []
    finite = {**body_to(CHAT, 20, "long"), "logprobs": True, **AT_LENGTH}
    answer = send(server, CHAT, **finite)
    assert len(answer.json()["choices"][0]["logprobs"]["content"]) == 20
