"""Turns of `/v1/responses` whose prompts start with the previous turns' tokens."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
import requests

from agentcore_patches.patches.releases import is_between
from agentcore_verify import client
from agentcore_verify.scripted_model import line
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.conversing import (
    BAD_PREFIXES,
    QUESTIONS,
    billing_header,
    is_object,
)
from tests.helpers.endpoints import (
    CHAT,
    RESPONSES,
    RESPONSES_TOOLS,
    Json,
    answers,
    openai_client,
    post,
    refused,
    require_traced,
    stream,
)
from tests.helpers.servers import Launch, Trees, held, held_requests, in_one_mode
from tests.helpers.waiting import wait_until
from tests.live.conftest import PREFIX_CACHE

USER = {"role": "user", "content": "Say hello."}
HELLO = {"role": "assistant", "content": "Hello."}

# Another test may have asked the same question, with other instructions.
NOT_REMEMBERED = tuple(
    {"source": "template", "missed": missed}
    for missed in ("unknown", "system", "message 1", "message 2")
)


@pytest.fixture(autouse=True)
def _continued(request: pytest.FixtureRequest, release: str) -> None:
    """Skip releases that reject a prefix there, which another test covers."""
    if "refused_by_early" in request.node.name:
        return
    require_traced(RESPONSES, release)


def asked(server: Server, items: Any, **more: Any) -> Json:
    return {
        "model": Subject(server.base_url).served_model(),
        "input": items,
        "tools": RESPONSES_TOOLS,
        "max_output_tokens": 60,
        "temperature": 0,
        "return_token_ids": True,
        **more,
    }


def respond(server: Server, items: Any, streaming: bool = False, **more: Any) -> Json:
    """Return a response; a stream's is that of its last event."""
    body = asked(server, items, **more)
    if not streaming:
        return post(server, RESPONSES, **body)
    events = stream(server, RESPONSES, **body)
    first: Json = events[0]["response"]
    last: Json = events[-1]["response"]
    assert events[0]["type"] == "response.created"
    assert prefix_of(first) == prefix_of(last)
    return last


def prefix_of(response: Json) -> Json | None:
    said: Json | None = (response.get("metadata") or {}).get("prefix")
    return said


def ids_of(response: Json) -> list[int]:
    return [*response["prompt_token_ids"], *response["token_ids"]]


def as_sent_back(response: Json, way: str) -> list[Json]:
    """Return the items of a response as agents send them back."""
    if way == "items":
        items: list[Json] = response["output"]
        return items
    kept: list[Json] = []
    for item in response["output"]:
        if item["type"] == "message":
            text = "".join(part["text"] for part in item["content"])
            phase = {"phase": item["phase"]} if item.get("phase") else {}
            kept.append({"role": "assistant", "content": text, **phase})
        elif item["type"] == "function_call":
            fields = ("type", "call_id", "name", "arguments")
            kept.append({name: item[name] for name in fields})
    return kept


def results_of(response: Json) -> list[Json]:
    return [
        {
            "type": "function_call_output",
            "call_id": item["call_id"],
            "output": f"result {position}",
        }
        for position, item in enumerate(response["output"])
        if item["type"] == "function_call"
    ]


def is_sent_back(response: Json, way: str) -> bool:
    """True if SGLang accepts the full answer back: the tiny model breaks some calls."""
    sent = as_sent_back(response, way)
    calls = [item for item in sent if item.get("type") == "function_call"]
    return bool(sent) and all(is_object(call["arguments"] or "{}") for call in calls)


def turns(
    server: Server, how: str, way: str, streaming: bool, **more: Any
) -> list[Json]:
    items: list[Json] = []
    past: Json = {}
    responses = []
    for question in QUESTIONS:
        items.append({"role": "user", "content": line(question).question})
        response = respond(server, items, streaming, **past, **more)
        responses.append(response)
        items = [*items, *as_sent_back(response, way), *results_of(response)]
        if how == "request":
            past = {"required_prefix_token_ids": ids_of(response)}
    return responses


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("way", ["items", "bare"])
def test_eight_turns_start_with_the_previous_turns(
    server: Server, way: str, streaming: bool
) -> None:
    responses = turns(server, "request", way, streaming)
    assert prefix_of(responses[0]) is None
    types = [item["type"] for response in responses for item in response["output"]]
    assert {"message", "function_call"} <= set(types)
    for before, response in pairwise(responses):
        required = ids_of(before)
        said = prefix_of(response)
        assert said is not None and said["source"] == "request"
        assert said["required"] == said["kept"] == len(required)
        assert response["prompt_token_ids"][: len(required)] == required
        assert len(response["prompt_token_ids"]) > len(required)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("way", ["items", "bare"])
def test_the_memory_continues_a_conversation_by_itself(
    remembering: Server, way: str, streaming: bool
) -> None:
    more: Json = {"instructions": f"{way} {streaming}"}
    responses = turns(remembering, "server", way, streaming, **more)
    assert prefix_of(responses[0]) is None
    n_continued = 0
    for position, response in enumerate(responses[1:], start=1):
        said = prefix_of(response)
        earlier = responses[:position]
        if said is None:
            # The history has no message of the assistant.
            assert not any(is_sent_back(one, way) for one in earlier)
            continue
        if said["source"] == "template":
            assert not is_sent_back(earlier[-1], way)
            continue
        assert said["source"] == "server"
        assert said["required"] == said["kept"]
        continued = response["prompt_token_ids"][: said["kept"]]
        if is_sent_back(earlier[-1], way):
            assert continued == ids_of(earlier[-1])
            n_continued += 1
        else:
            # The turn before, which is at the end of the history.
            assert continued in map(ids_of, earlier[:-1])
    # The tiny model may only reason, and "bare" does not send reasoning back.
    reasons = "--reasoning-parser" in remembering.options.args
    assert n_continued > (0 if reasons and way == "bare" else 1)


def test_the_openai_client_continues_without_extra_fields(
    remembering: Server,
) -> None:
    api = openai_client(remembering)
    for streaming in (False, True):
        items: list[Any] = []
        said = []
        for question in ("reasoning_then_tool", "plain", "reasoning", "emoji"):
            items.append({"role": "user", "content": line(question).question})
            body = asked(remembering, items, instructions=f"openai {streaming}")
            del body["return_token_ids"]
            if streaming:
                with api.responses.stream(**body) as events:
                    response = events.get_final_response()
            else:
                response = api.responses.create(**body)
            said.append((response.metadata or {}).get("prefix"))
            sent = response.model_dump()
            items += [*as_sent_back(sent, "items"), *results_of(sent)]
        assert said[0] is None
        assert all(prefix and prefix["source"] == "server" for prefix in said[1:])


def test_the_clients_own_metadata_is_kept(server: Server) -> None:
    first = respond(server, [USER], metadata={"run": "7"})
    assert first["metadata"] == {"run": "7"}
    required = ids_of(first)
    second = respond(
        server,
        [USER, *as_sent_back(first, "items"), USER],
        metadata={"run": "7"},
        required_prefix_token_ids=required,
    )
    assert second["metadata"]["run"] == "7"
    assert prefix_of(second) is not None


@pytest.mark.parametrize("flag", [False, None])
def test_the_prefix_needs_no_return_token_ids(server: Server, flag: Any) -> None:
    first = respond(server, [USER])
    required = ids_of(first)
    items = [USER, HELLO, USER]
    more: Json = {"required_prefix_token_ids": required, "return_token_ids": flag}
    for streaming in (False, True):
        second = respond(server, items, streaming, **more)
        said = prefix_of(second)
        assert said is not None and said["kept"] == len(required)
        assert "prompt_token_ids" not in second


@in_one_mode
@pytest.mark.parametrize("nothing", [None, []])
def test_null_and_empty_count_as_absent(server: Server, nothing: Any) -> None:
    response = respond(server, [USER, HELLO, USER], required_prefix_token_ids=nothing)
    assert prefix_of(response) is None


BAD: tuple[tuple[Json, str], ...] = (
    *BAD_PREFIXES,
    ({"required_prefix_token_ids": [7], "input": "Hi."}, "assistant message"),
    ({"required_prefix_token_ids": [7], "input": [USER, HELLO]}, "last message"),
    (
        {
            "required_prefix_token_ids": [7],
            "return_token_ids": False,
            "background": True,
        },
        "background=false",
    ),
)


@in_one_mode
def test_a_bad_prefix_is_refused(server: Server) -> None:
    before = set(held(server))
    body = asked(server, [USER, HELLO, USER])
    for more, said in BAD:
        for streaming in (False, True):
            with refused(said, "required_prefix_token_ids") as refusal:
                answers(server, RESPONSES, streaming, **body | more)
            assert " None" not in refusal.value.body
    wait_until(lambda: set(held(server)) <= before)
    assert ids_of(respond(server, [USER]))


@pytest.fixture(scope="module")
def storing(trees: Trees, launch: Launch, release: str) -> Iterator[Server]:
    args = ("--enable-response-store",) if is_between(release, "0.5.20", "") else ()
    with launch(trees.patched, *args, env={PREFIX_CACHE: "16"}) as running:
        yield running


@pytest.mark.parametrize("streaming", [False, True])
def test_only_the_memory_continues_a_stored_response(
    storing: Server, streaming: bool
) -> None:
    more: Json = {"instructions": f"stored {streaming}", "tools": []}
    first = respond(storing, [USER], store=True, **more)
    more["previous_response_id"] = first["id"]
    with refused("previous_response_id"):
        respond(
            storing, [USER], streaming, required_prefix_token_ids=ids_of(first), **more
        )
    second = respond(storing, [USER], streaming, **more)
    said = prefix_of(second)
    if said is not None and said["source"] != "template":
        assert second["prompt_token_ids"][: said["kept"]] == ids_of(first)


def test_a_background_response_is_not_remembered(storing: Server) -> None:
    more: Json = {"instructions": "background", "tools": [], "return_token_ids": False}
    queued = respond(storing, [USER], background=True, store=True, **more)
    stored: Json = {}

    def is_complete() -> bool:
        url = f"{storing.base_url}{RESPONSES}/{queued['id']}"
        stored.update(requests.get(url, timeout=10).json())
        return bool(stored["status"] == "completed")

    wait_until(is_complete)
    assert prefix_of(stored) is None
    more["return_token_ids"] = True
    items = [USER, *as_sent_back(stored, "bare"), USER]
    said = prefix_of(respond(storing, items, **more))
    assert said in NOT_REMEMBERED


@pytest.mark.parametrize("streaming", [False, True])
def test_return_token_ids_false_uses_no_memory(
    remembering: Server, streaming: bool
) -> None:
    more: Json = {"instructions": f"opted out {streaming}", "return_token_ids": False}
    first = respond(remembering, [USER], streaming, **more)
    second = respond(
        remembering,
        [USER, *as_sent_back(first, "items"), USER],
        streaming,
        **more,
    )
    assert prefix_of(second) is None


@pytest.mark.parametrize("streaming", [False, True])
def test_similar_conversations_do_not_mix(remembering: Server, streaming: bool) -> None:
    first: dict[str, Json] = {}
    for word in ("amber", "cobalt"):
        said = f"{word} {streaming}"
        first[word] = respond(remembering, [USER], streaming, instructions=said)
    for word, response in first.items():
        more: Json = {"instructions": f"{word} {streaming}"}
        items = [USER, *as_sent_back(response, "items"), USER]
        required = ids_of(response)
        second = respond(remembering, items, streaming, **more)
        assert second["prompt_token_ids"][: len(required)] == required
        others: tuple[tuple[str, list[Json], Json], ...] = (
            ("tools", items, {"tools": []}),
            ("cache_salt", items, {"cache_salt": "another"}),
            ("cache_salt", items, {"extra_key": "another"}),
            ("system", items, {"instructions": "another"}),
            (
                "message 1",
                [{"role": "user", "content": more["instructions"]}, *items[1:]],
                {},
            ),
        )
        for reason, asked_items, other in others:
            third = respond(remembering, asked_items, streaming, **(more | other))
            missed = {"source": "template", "missed": reason}
            assert prefix_of(third) == missed, other


@pytest.mark.parametrize("streaming", [False, True])
def test_volatile_lines_of_the_instructions_do_not_count(
    remembering: Server, streaming: bool
) -> None:
    items: list[Json] = [USER]
    required: list[int] = []
    for number in range(3):
        instructions = (
            f"{billing_header(number)}\nStreamed: {streaming}\n"
            f"<total_tokens>{number} tokens left</total_tokens>"
        )
        response = respond(remembering, items, streaming, instructions=instructions)
        if number:
            said = prefix_of(response)
            assert said is not None and said["source"] == "server"
            assert said["required"] == len(required)
        required = ids_of(response)
        items = [*items, *as_sent_back(response, "items"), USER]


def test_chat_continues_a_response(remembering: Server) -> None:
    more: Json = {"instructions": "both", "tools": []}
    first = respond(remembering, [USER], **more)
    chat = post(
        remembering,
        CHAT,
        model=Subject(remembering.base_url).served_model(),
        messages=[
            {"role": "system", "content": "both"},
            USER,
            *as_sent_back(first, "bare"),
            USER,
        ],
        max_tokens=3,
    )
    said = prefix_of(chat)
    if said is not None and said["source"] != "template":
        assert chat["prompt_token_ids"][: said["kept"]] == ids_of(first)


@pytest.mark.usefixtures("slow_engine")
def test_a_disconnected_or_aborted_response_is_not_remembered(
    remembering: Server,
) -> None:
    user = {"role": "user", "content": line("long").question}
    for end in ("left", "aborted"):
        more: Json = {"instructions": end, "max_output_tokens": 400, "tools": []}
        body = asked(remembering, [user], **more, stream=True)
        events = client.post_stream(remembering.base_url + RESPONSES, body, done=False)
        text = ""
        rid = next(events)["response"]["id"]
        n_with_ids = 0
        for event in events:
            n_with_ids += bool(event.get("token_ids"))
            if event["type"] == "response.output_text.delta":
                text += event["delta"]
            if n_with_ids == 5 and end == "left":
                break
            if n_with_ids == 5:
                client.post(f"{remembering.base_url}/abort_request", {"rid": rid})
        assert 4 < n_with_ids < 200
        events.close()
        assert held_requests(remembering) == []
        items = [user, {"role": "assistant", "content": text}, USER]
        more["max_output_tokens"] = 3
        said = prefix_of(respond(remembering, items, **more))
        assert said in NOT_REMEMBERED


def test_twenty_streams_each_have_their_own_prefix(server: Server) -> None:
    firsts = [
        respond(server, [USER], instructions=f"stream {number}", tools=[])
        for number in range(20)
    ]

    def go_on(number: int) -> Json:
        return respond(
            server,
            [USER, *as_sent_back(firsts[number], "items"), USER],
            True,
            instructions=f"stream {number}",
            tools=[],
            required_prefix_token_ids=ids_of(firsts[number]),
        )

    with ThreadPoolExecutor(20) as pool:
        seconds = list(pool.map(go_on, range(20)))
    for first, second in zip(firsts, seconds, strict=True):
        required = ids_of(first)
        assert second["prompt_token_ids"][: len(required)] == required
    assert held_requests(server) == []


@in_one_mode
def test_a_prefix_is_refused_by_early_releases(server: Server, release: str) -> None:
    if is_between(release, "0.5.14", ""):
        pytest.skip(f"/v1/responses of SGLang {release} accepts a prefix")
    body: Json = {"input": "Say hello.", "max_output_tokens": 3}
    body["model"] = Subject(server.base_url).served_model()
    wrong: tuple[tuple[Any, str], ...] = (([7], "0.5.14 is the first"), (7, "list"))
    for prefix, said in wrong:
        body["required_prefix_token_ids"] = prefix
        for streaming in (False, True):
            with refused("required_prefix_token_ids", said):
                answers(server, RESPONSES, streaming, **body)
    del body["required_prefix_token_ids"]
    post(server, RESPONSES, **body, required_prefix_token_ids=None)
    post(server, RESPONSES, **body, required_prefix_token_ids=[])
