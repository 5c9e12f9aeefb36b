"""A NaN logprob fails its request with a readable error, on every endpoint."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
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
SAID = [{"role": "user", "content": "Name many things."}]
SAMPLING = {"temperature": NOT_FINITE, "max_tokens": 200}
AT_LENGTH = {**SAMPLING, "ignore_eos": True}
OF_GENERATE = {"temperature": NOT_FINITE, "max_new_tokens": 200, "ignore_eos": True}
PROMPT = {"prompt": "Name", "logprobs": 1, **AT_LENGTH}
TEXT = "Name many things."
OF_RESPONSES = {"temperature": NOT_FINITE, "max_output_tokens": 200}
IDS = {"return_token_ids": True}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "generate": (
        "/generate",
        {"text": TEXT, "return_logprob": True, "sampling_params": OF_GENERATE},
    ),
    "chat": (CHAT, {"messages": SAID, "logprobs": True, **AT_LENGTH}),
    "completions": (COMPLETIONS, {**PROMPT, **IDS}),
    "completions, unpatched fields": (COMPLETIONS, PROMPT),
    "messages": (MESSAGES, {"messages": SAID, **SAMPLING, **IDS}),
    "responses": (RESPONSES, {"input": TEXT, **OF_RESPONSES, **IDS}),
}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_nan_is_a_readable_error(
    server: Server, name: str, stream: bool, release: str
) -> None:
    path, body = REQUESTS[name]
    require_traced(path, release)
    model = Subject(server.base_url).served_model()
    answer = send(server, path, model=model, **body, stream=stream)
    # A stream that fails at its first token may still have an error status.
    assert stream or answer.status_code >= 400
    assert MESSAGE in answer.text
    assert "null,null" not in answer.text
    assert '"token_logprobs":[null' not in answer.text
    assert held_requests(server) == []
    finite = {"temperature": 0, "max_tokens": 20, "ignore_eos": True}
    answer = send(server, CHAT, messages=SAID, logprobs=True, **finite)
    assert len(answer.json()["choices"][0]["logprobs"]["content"]) == 20
