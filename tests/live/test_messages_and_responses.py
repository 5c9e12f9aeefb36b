"""`/v1/messages` and `/v1/responses` have chat's token IDs, in each mode."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from tokenizers import Tokenizer

from agentcore_patches.patches.releases import is_between
from agentcore_verify import client
from agentcore_verify.scripted_model import line
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.asking import LOGPROB_NOISE, Case
from tests.helpers.endpoints import (
    CHAT,
    MESSAGES,
    RESPONSES,
    Json,
    answers,
    body_to,
    ids_in,
    openai_client,
    post,
    refused,
    require_traced,
    send,
)
from tests.helpers.servers import held_requests, in_one_mode

CASES = {
    "emoji": False,
    "silent": False,
    "two_tools": True,
    "text_then_tool": True,
    "reasoning_then_tool": True,
}
"""Lines of the script, and whether the request has tools."""

CALLS = ("tool_use", "function_call")
"""The types of what calls a tool, in a message and in a response."""

at_each = pytest.mark.parametrize("path", [MESSAGES, RESPONSES])


@pytest.fixture(autouse=True)
def _traced(request: pytest.FixtureRequest, release: str) -> None:
    """Skip releases without traces, which another test covers."""
    if "without_traces" in request.node.name:
        return
    require_traced(request.node.callspec.params.get("path", RESPONSES), release)


def body_of(name: str, path: str = RESPONSES, **more: Any) -> Json:
    body = body_to(path, 700, name, tools=CASES.get(name, False))
    return {**body, "return_token_ids": True, **more}


def respond(server: Server, path: str = RESPONSES, **body: Any) -> Json:
    [response] = events_of(server, path, streaming=False, **body)
    return response


def events_of(
    server: Server, path: str = RESPONSES, streaming: bool = True, **body: Any
) -> list[Json]:
    model = Subject(server.base_url).served_model()
    return answers(server, path, streaming, **{"model": model, **body})


def text_in(event: Json) -> str:
    """Return the text that an event of a message or of a response adds."""
    delta = event.get("delta", "")
    if isinstance(delta, dict):
        return str(delta.get("text", ""))
    return str(delta) if event["type"] == "response.output_text.delta" else ""


@at_each
@pytest.mark.parametrize("name", CASES)
def test_an_answer_and_its_events_have_the_ids_and_logprobs_of_chat(
    server: Server, tokenizer: Tokenizer, mode: str, name: str, path: str
) -> None:
    chat = post(server, CHAT, **Case(name, tools=CASES[name]).body(logprobs=True))
    [choice] = chat["choices"]
    values = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    logprobs = pytest.approx(values, abs=LOGPROB_NOISE)

    def assert_traced(answer: Json) -> None:
        assert answer["prompt_token_ids"] == chat["prompt_token_ids"]
        assert answer["token_ids"] == choice["token_ids"]
        assert answer["token_logprobs"] == logprobs

    answer = respond(server, path, **body_of(name, path))
    assert_traced(answer)
    items = answer["content"] if path == MESSAGES else answer["output"]
    called = [item["name"] for item in items if item["type"] in CALLS]
    calls = choice["message"].get("tool_calls") or ()
    assert called == [call["function"]["name"] for call in calls]

    first, *others = events = events_of(server, path, **body_of(name, path))
    begun = first["message" if path == MESSAGES else "response"]
    joined: Json = {"token_ids": [], "token_logprobs": []}
    text = ""
    for event in events:
        assert len(event.get("token_ids", [])) == len(event.get("token_logprobs", []))
        for key, so_far in joined.items():
            so_far += event.get(key, [])
        text += text_in(event)
        # Text that a parser holds back or removes is not in the answer.
        if mode != "reasoning" and not CASES[name]:
            assert tokenizer.decode(joined["token_ids"]).startswith(text)
    assert not any("prompt_token_ids" in event for event in others)
    assert_traced({"prompt_token_ids": begun["prompt_token_ids"], **joined})
    if path == RESPONSES:
        assert_traced(others[-1]["response"])
    ends = ("response.created", "response.completed")
    if path == MESSAGES:
        ends = ("message_start", "message_stop")
    assert (first["type"], others[-1]["type"]) == ends


@in_one_mode
def test_requests_that_cannot_be_traced_are_refused(server: Server) -> None:
    for more, named in (
        ({"return_token_ids": [1]}, "return_token_ids"),
        ({"background": True}, "background=false"),
    ):
        for streaming in (False, True):
            with refused(named):
                events_of(server, streaming=streaming, **body_of("plain", **more))


@in_one_mode
def test_releases_without_traces_refuse_what_needs_them(
    server: Server, release: str
) -> None:
    if is_between(release, "0.5.14", ""):
        pytest.skip(f"/v1/responses of SGLang {release} is traced")
    prefix = "required_prefix_token_ids"
    body = body_of("plain", return_token_ids=None)
    for field, value in (("return_token_ids", True), (prefix, [7])):
        with refused(field, "0.5.14 is the first"):
            respond(server, **{**body, field: value})
    assert respond(server, **{**body, prefix: None})
    assert respond(server, **{**body, prefix: []})


@in_one_mode
def test_a_prompt_that_is_too_long_is_an_error(server: Server) -> None:
    for name in ("plain", "two_tools"):
        body = body_of(name, input="x " * 20_000)
        with refused():
            respond(server, **body)
        assert "error" in json.dumps(events_of(server, **body)[-1])


def test_the_openai_client_reads_the_token_ids(server: Server) -> None:
    whole = respond(server, **body_of("text_then_tool"))
    asked = body_of("text_then_tool", model=Subject(server.base_url).served_model())
    asked["extra_body"] = {"return_token_ids": asked.pop("return_token_ids")}
    api = openai_client(server)
    # The SDK's text events have no field for the IDs; the response has all of them.
    with api.responses.stream(**asked) as stream:
        final = stream.get_final_response()
    for response in (api.responses.create(**asked), final):
        assert response.prompt_token_ids == whole["prompt_token_ids"]
        assert response.token_ids == whole["token_ids"]
        assert [item.type for item in response.output] == [
            item["type"] for item in whole["output"]
        ]


@pytest.mark.parametrize("path", [MESSAGES])
def test_a_message_reports_the_matched_stop_sequence(
    server: Server, tokenizer: Tokenizer, path: str
) -> None:
    whole = respond(server, path, **body_of("plain", path))
    word = tokenizer.decode(whole["token_ids"]).split()[3]
    for more, end in (
        ({}, ("end_turn", None)),
        ({"stop_sequences": ["never said", word]}, ("stop_sequence", word)),
        ({"stop_sequences": [word], "max_tokens": 3}, ("max_tokens", None)),
        ({"stop_sequences": [word], "return_token_ids": False}, ("end_turn", None)),
    ):
        body = body_of("plain", path, **more)
        said = events_of(server, path, **body)[-2]["delta"]
        for one in (respond(server, path, **body), said):
            assert (one["stop_reason"], one.get("stop_sequence")) == end


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize("mode", ["default"], indirect=True, scope="session")
@pytest.mark.parametrize("path", [MESSAGES])
def test_a_message_is_refused_with_the_error_of_chat(server: Server, path: str) -> None:
    for more in ({"temperature": -1}, {"max_tokens": 10**9}):
        asked = {"messages": line("plain").messages, "max_tokens": 9, **more}
        chat = send(server, CHAT, model="default", **asked)
        assert chat.status_code == 400
        for traced, streaming in product((False, True), repeat=2):
            flags = {"return_token_ids": traced, "stream": streaming}
            answer = send(server, path, model="default", **asked, **flags)
            assert answer.status_code == 400 or streaming
            # In some releases, SGLang begins and ends the message around the error.
            errors = [one for one in answer.text.split("\n\n") if '"error"' in one]
            [(_, _, data)] = [one.rpartition("data: ") for one in errors]
            assert json.loads(data)["error"]["message"] == chat.json()["message"]
            assert "end_turn" not in answer.text


@pytest.mark.usefixtures("slow_engine")
def test_an_aborted_stream_ends_with_all_sampled_tokens(server: Server) -> None:
    body = {"model": Subject(server.base_url).served_model(), **body_of("long")}
    whole = respond(server, **body_of("long"))
    events: list[Json] = []
    for event in client.post_stream(server.base_url + RESPONSES, body, done=False):
        events.append(event)
        if sum("token_ids" in one for one in events) == 3:
            rid = events[0]["response"]["id"]
            client.post(f"{server.base_url}/abort_request", {"rid": rid})
    token_ids = ids_in(events)
    last = events[-1]["response"]
    assert last["token_ids"] == token_ids
    assert len(last["token_logprobs"]) == len(token_ids)
    assert 2 < len(token_ids) < len(whole["token_ids"])
    assert token_ids == whole["token_ids"][: len(token_ids)]
    assert held_requests(server) == []
