"""`/v1/messages` and `/v1/responses` have chat's token IDs, in each mode."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
import requests
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

FIELDS = {"prompt_token_ids", "token_ids", "token_logprobs"}
CASES = {
    "plain": False,
    "emoji": False,
    "silent": False,
    "reasoning": False,
    "two_tools": True,
    "text_then_tool": True,
    "reasoning_then_tool": True,
}
"""Lines of the script, and whether the request has tools."""

REFUSED: tuple[Json, ...] = ({"temperature": -1}, {"max_tokens": 10**9})
"""Messages that chat rejects with a 400."""

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


def text_of(response: Json) -> str:
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


def text_in(event: Json) -> str:
    """Return the text that an event of a message or of a response adds."""
    delta = event.get("delta", "")
    if isinstance(delta, dict):
        return str(delta.get("text", ""))
    return str(delta) if event["type"] == "response.output_text.delta" else ""


@at_each
@pytest.mark.parametrize("name", CASES)
def test_an_answer_has_the_ids_and_logprobs_of_the_chat_answer(
    server: Server, name: str, path: str
) -> None:
    asked = Case(name, tools=CASES[name]).body(logprobs=True)
    chat = post(server, CHAT, **asked)
    [choice] = chat["choices"]
    answer = respond(server, path, **body_of(name, path))
    assert answer["prompt_token_ids"] == chat["prompt_token_ids"]
    assert answer["token_ids"] == choice["token_ids"]
    assert answer["token_logprobs"] == pytest.approx(
        [entry["logprob"] for entry in choice["logprobs"]["content"]],
        abs=LOGPROB_NOISE,
    )
    usage = answer["usage"]
    # Non-streaming early /v1/responses name them like chat.
    in_chat = "prompt_tokens" in usage
    n_prompt = usage["prompt_tokens" if in_chat else "input_tokens"]
    n_completion = usage["completion_tokens" if in_chat else "output_tokens"]
    assert n_prompt == len(answer["prompt_token_ids"])
    assert n_completion == len(answer["token_ids"])
    items = answer["content"] if path == MESSAGES else answer["output"]
    called = [item["name"] for item in items if item["type"] in CALLS]
    calls = choice["message"].get("tool_calls") or ()
    assert called == [call["function"]["name"] for call in calls]


@at_each
@pytest.mark.parametrize("name", CASES)
def test_events_have_the_ids_of_their_text(
    server: Server, tokenizer: Tokenizer, mode: str, name: str, path: str
) -> None:
    whole = respond(server, path, **body_of(name, path))
    first, *others = events = events_of(server, path, **body_of(name, path))
    begun = first["message" if path == MESSAGES else "response"]
    assert begun["prompt_token_ids"] == whole["prompt_token_ids"]
    token_ids: list[int] = []
    token_logprobs: list[float] = []
    text = ""
    for event in events:
        new = event.get("token_ids", [])
        assert len(new) == len(event.get("token_logprobs", []))
        token_ids += new
        token_logprobs += event.get("token_logprobs", [])
        text += text_in(event)
        # Text that a parser holds back or removes is not in the answer.
        if mode != "reasoning" and not CASES[name]:
            assert tokenizer.decode(token_ids).startswith(text)
    assert not any("prompt_token_ids" in event for event in others)
    assert token_ids == whole["token_ids"]
    assert token_logprobs == pytest.approx(whole["token_logprobs"], abs=LOGPROB_NOISE)
    ends = [event["type"] for event in (first, others[-1])]
    if path == MESSAGES:
        assert ends == ["message_start", "message_stop"]
        return
    if name == "emoji":
        assert sum("token_ids" in event for event in events) > 3
    assert ends[0] == "response.created"
    assert ends[1] in ("response.completed", "response.incomplete")
    last = others[-1]["response"]
    assert last["prompt_token_ids"] == whole["prompt_token_ids"]
    assert (last["token_ids"], last["token_logprobs"]) == (token_ids, token_logprobs)
    streamed, text = text_of(last).strip(), text_of(whole).strip()
    if CASES[name]:
        # SGLang's parser loses the text before a tool call in the same result.
        assert text.startswith(streamed)
    else:
        assert streamed == text


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
    wrong: tuple[tuple[str, Any, str], ...] = (
        ("return_token_ids", True, "0.5.14 is the first"),
        ("return_token_ids", [1], "bool"),
        (prefix, [7], "0.5.14 is the first"),
        (prefix, 7, "list"),
    )
    body = body_of("plain", return_token_ids=None)
    for field, value, said in wrong:
        for streaming in (False, True):
            with refused(field, said):
                events_of(server, streaming=streaming, **{**body, field: value})
    assert respond(server, **{**body, prefix: None})
    assert respond(server, **{**body, prefix: []})


@in_one_mode
@pytest.mark.parametrize("name", ["plain", "two_tools"])
def test_a_prompt_that_is_too_long_is_an_error(server: Server, name: str) -> None:
    body = body_of(name, input="x " * 20_000)
    with refused():
        respond(server, **body)
    events = events_of(server, **body)
    assert "error" in json.dumps(events[-1])
    assert respond(server, **body_of(name))["token_ids"]


def test_the_openai_client_reads_the_token_ids(server: Server, mode: str) -> None:
    whole = respond(server, **body_of("text_then_tool"))
    types = [item["type"] for item in whole["output"]]
    # The reasoning parser treats all of it as reasoning.
    assert ("reasoning" if mode == "reasoning" else "function_call") in types
    asked = body_of("text_then_tool", model=Subject(server.base_url).served_model())
    del asked["return_token_ids"]
    asked["extra_body"] = {"return_token_ids": True}
    api = openai_client(server)
    created = api.responses.create(**asked)
    token_ids = [
        token_id
        for event in api.responses.create(**asked, stream=True)
        for token_id in getattr(event, "token_ids", None) or ()
    ]
    assert token_ids == whole["token_ids"]
    # The SDK's text events have no field for the IDs; the response has all of them.
    with api.responses.stream(**asked) as stream:
        final = stream.get_final_response()
    for response in (created, final):
        assert response.prompt_token_ids == whole["prompt_token_ids"]
        assert response.token_ids == whole["token_ids"]
        assert response.token_logprobs == pytest.approx(
            whole["token_logprobs"], abs=LOGPROB_NOISE
        )
        assert [item.type for item in response.output] == types


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("path", [MESSAGES])
def test_a_message_reports_the_matched_stop_sequence(
    server: Server, tokenizer: Tokenizer, path: str, streaming: bool
) -> None:
    def end_of(**more: Any) -> tuple[str, str | None]:
        events = events_of(server, path, streaming, **body_of("plain", path, **more))
        said = events[-2]["delta"] if streaming else events[0]
        return said["stop_reason"], said.get("stop_sequence")

    whole = respond(server, path, **body_of("plain", path))
    word = tokenizer.decode(whole["token_ids"]).split()[3]
    assert end_of() == ("end_turn", None)
    assert end_of(stop_sequences=["never said", word]) == ("stop_sequence", word)
    assert end_of(max_tokens=3, stop_sequences=[word]) == ("max_tokens", None)
    without = end_of(stop_sequences=[word], return_token_ids=False)
    assert without == ("end_turn", None)


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize("mode", ["default"], indirect=True, scope="session")
@pytest.mark.parametrize("path", [MESSAGES])
def test_a_message_is_refused_with_the_error_of_chat(
    server: Server, release: str, path: str
) -> None:
    for more in REFUSED:
        asked = {"messages": line("plain").messages, "max_tokens": 9, **more}
        chat = send(server, CHAT, model="default", **asked)
        assert chat.status_code == 400
        for traced, streaming in product((False, True), repeat=2):
            flags = {"return_token_ids": traced, "stream": streaming}
            answer = send(server, path, model="default", **asked, **flags)
            assert error_of(answer, release)["message"] == chat.json()["message"]


def error_of(answer: requests.Response, release: str) -> Json:
    """Return the error of a rejected message, from its body or its only event."""
    assert "end_turn" not in answer.text
    if "text/event-stream" not in answer.headers["content-type"]:
        assert answer.status_code == 400
        return error_in(answer.json())
    events = [event for event in answer.text.split("\n\n") if event]
    if is_between(release, "", "0.5.13.post1"):
        assert len(events) == 1
    else:
        # SGLang begins and ends the message around the error.
        events = [event for event in events if event.startswith("event: error")]
    [(kind, _, data)] = [event.partition("\ndata: ") for event in events]
    assert kind == "event: error"
    error = error_in(json.loads(data))
    assert error["type"] == "invalid_request_error"
    return error


def error_in(said: Json) -> Json:
    assert said["type"] == "error"
    error: Json = said["error"]
    return error


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
