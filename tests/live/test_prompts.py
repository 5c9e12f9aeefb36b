"""Prompts of token IDs, at every endpoint: no bad prompt reaches the engine."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import requests

from agentcore_patches.patches.releases import is_between
from agentcore_verify import client
from agentcore_verify.server import Server
from tests.helpers.endpoints import CHAT, COMPLETIONS, Json, send
from tests.helpers.servers import held_requests

pytestmark = [
    pytest.mark.parametrize("mode", ["default"], indirect=True, scope="session"),
    pytest.mark.usefixtures("forget"),
]

# tests/unit has a table of more.
BAD = {
    "negative": [5, -1],
    "beyond 64 bits": [5, 2**70],
    "longer than the context": [5] * 40_000,
    "empty, in a batch": [[5], []],
}
SAMPLING = {"temperature": 0, "max_new_tokens": 3}


in_both_ways = pytest.mark.parametrize("stream", [False, True])


def generate(server: Server, **body: Any) -> requests.Response:
    return send(server, "/generate", **{"sampling_params": SAMPLING, **body})


def complete(server: Server, **body: Any) -> requests.Response:
    return send(server, COMPLETIONS, model="x", temperature=0, max_tokens=3, **body)


@in_both_ways
@pytest.mark.parametrize("prompt", BAD.values(), ids=BAD)
def test_a_bad_prompt_is_refused_by_name_and_the_server_keeps_running(
    server: Server, prompt: Any, stream: bool, release: str
) -> None:
    refused = generate(server, input_ids=prompt, stream=stream)
    assert refused.status_code == 400
    # From 0.5.13 on, SGLang's schema rejects values that are not 64-bit integers.
    by_schema = is_between(release, "0.5.13", "") and prompt == [5, 2**70]
    message = refused.text if by_schema else refused.json()["error"]["message"]
    assert "input_ids" in message
    refused = complete(server, prompt=prompt, stream=stream)
    assert refused.status_code == 400
    assert "prompt" in refused.json()["message"]
    served = generate(server, input_ids=[5, 400]).json()
    assert len(served["output_ids"]) == 3
    assert complete(server, prompt=[[5], [6, 7]]).json()["usage"]["prompt_tokens"] == 3


def test_an_empty_text_is_refused_and_the_server_keeps_running(
    server: Server, release: str
) -> None:
    for text, stream in product(("", ["a", ""]), (False, True)):
        for refused in (
            generate(server, text=text, stream=stream),
            complete(server, prompt=text, stream=stream),
        ):
            assert "cannot be empty" in refused.text
            assert refused.status_code == 400 or stream
    assert len(generate(server, input_ids=[5, 400]).json()["output_ids"]) == 3
    # These keep a note of what they refuse themselves.
    if not is_between(release, "0.5.10", "0.5.13"):
        assert held_requests(server) == []


def test_a_batch_of_streams_returns_each_prompt_once(server: Server) -> None:
    prompts = [[5, 6], [7]]
    body: Json = {"input_ids": prompts, "sampling_params": SAMPLING}
    asked = {**body, "return_prompt_token_ids": True}
    chunks = client.post_stream(f"{server.base_url}/generate", asked)
    found = [
        (c["index"], c["prompt_token_ids"]) for c in chunks if "prompt_token_ids" in c
    ]
    assert sorted(found) == list(enumerate(prompts))


LONG = "a " * 17000
"""Within the model's context, but longer than the KV cache of the tests' servers."""


@pytest.mark.parametrize("logprobs", [False, True])
@in_both_ways
def test_a_rejection_by_the_scheduler_is_an_error_with_the_reason(
    server: Server, stream: bool, logprobs: bool, release: str
) -> None:
    # From 0.5.10 on, a stream's first line precedes its status.
    is_event = stream and is_between(release, "", "0.5.9")
    messages = [{"role": "user", "content": LONG}]
    answers = [
        send(server, CHAT, messages=messages, logprobs=logprobs, stream=stream),
        complete(server, prompt=LONG, logprobs=1 if logprobs else None, stream=stream),
    ]
    for answer in answers:
        assert answer.status_code == (200 if is_event else 400)
        # Chat returns the prompt's IDs before the scheduler sees it.
        assert "maximum allowed length" in answer.text or "is longer" in answer.text
        assert "token_ids" not in answer.text
        if is_event:
            events = [*client.parse_events(answer.iter_lines())]
            assert "error" in events[-1]
    body: dict[str, Any] = {"text": LONG, "return_logprob": logprobs}
    if logprobs:
        body["token_ids_logprob"] = [5]
    if stream:
        *_, last = client.post_stream(f"{server.base_url}/generate", body)
        assert (last["output_ids"], last["text"]) == ([], "")
        assert last["meta_info"]["finish_reason"]["type"] == "abort"
        assert last["meta_info"]["completion_tokens"] == 0
    else:
        assert generate(server, **body).status_code == 400


def test_a_log_that_omits_the_prompt_omits_its_ids(server: Server) -> None:
    def configure(log_requests: bool) -> None:
        body = {"log_requests": log_requests, "log_requests_level": 1}
        send(server, "/configure_logging", **body).raise_for_status()

    before = len(server.log.read_text())
    configure(True)
    try:
        for stream in (False, True):
            answer = generate(
                server,
                input_ids=[101, 102, 103, 104],
                sampling_params={**SAMPLING, "sampling_seed": 77},
                return_prompt_token_ids=True,
                stream=stream,
            )
            assert "prompt_token_ids" in answer.text
    finally:
        configure(False)
    log = server.log.read_text()[before:]
    assert log.count("Finish: obj=") == 2
    assert "'sampling_seed': 77" in log
    assert "101, 102" not in log
