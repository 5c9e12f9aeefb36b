"""Turns of `/v1/responses` alone, beyond what `test_prefix` holds for each endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from agentcore_patches.patches.releases import is_between
from agentcore_verify import client
from agentcore_verify.scripted_model import line
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.conversing import (
    HELLO,
    USER,
    Turn,
    take_turn,
)
from tests.helpers.endpoints import (
    RESPONSES,
    TOOLS_OF,
    Json,
    openai_client,
    post,
    refused,
    require_traced,
)
from tests.helpers.servers import Launch, Trees, held_requests
from tests.helpers.waiting import wait_until
from tests.live.conftest import PREFIX_CACHE

# Another test may have asked the same question, with other instructions.
NOT_REMEMBERED = tuple(
    {"source": "template", "missed": missed}
    for missed in ("unknown", "system", "message 1", "message 2")
)


@pytest.fixture(autouse=True)
def _traced(release: str) -> None:
    require_traced(RESPONSES, release)


def respond(
    server: Server, items: list[Any], streaming: bool = False, **more: Any
) -> Turn:
    return take_turn(server, RESPONSES, items, streaming, **more)


def test_the_openai_client_continues_without_extra_fields(
    remembering: Server,
) -> None:
    api = openai_client(remembering)
    model = Subject(remembering.base_url).served_model()
    for streaming in (False, True):
        items: list[Any] = []
        said = []
        for question in ("reasoning_then_tool", "plain", "reasoning", "emoji"):
            items.append({"role": "user", "content": line(question).question})
            body: Json = {"model": model, "input": items, "tools": TOOLS_OF[RESPONSES]}
            body |= {"instructions": f"openai {streaming}", "temperature": 0}
            body["max_output_tokens"] = 60
            if streaming:
                with api.responses.stream(**body) as events:
                    response = events.get_final_response()
            else:
                response = api.responses.create(**body)
            said.append((response.metadata or {}).get("prefix"))
            for item in response.model_dump()["output"]:
                items.append(item)
                if item["type"] == "function_call":
                    result = {"call_id": item["call_id"], "output": "result"}
                    items.append({"type": "function_call_output", **result})
        assert said[0] is None
        assert all(prefix and prefix["source"] == "server" for prefix in said[1:])


def test_the_clients_own_metadata_is_kept(server: Server) -> None:
    body: Json = {
        "model": Subject(server.base_url).served_model(),
        "max_output_tokens": 3,
    }
    body |= {"input": [USER, HELLO, USER], "metadata": {"run": "7"}}
    assert post(server, RESPONSES, **body)["metadata"] == {"run": "7"}
    metadata = post(server, RESPONSES, **body, required_prefix_token_ids=[7])[
        "metadata"
    ]
    assert metadata["run"] == "7" and metadata["prefix"]["required"] == 1


@pytest.fixture(scope="module")
def storing(trees: Trees, launch: Launch, release: str) -> Iterator[Server]:
    args = ("--enable-response-store",) if is_between(release, "0.5.20", "") else ()
    with launch(trees.patched, *args, env={PREFIX_CACHE: "16"}) as running:
        yield running


@pytest.mark.parametrize("streaming", [False, True])
def test_only_the_memory_continues_a_stored_response(
    storing: Server, streaming: bool
) -> None:
    more: Json = {"instructions": f"stored {streaming}"}
    body: Json = {"model": Subject(storing.base_url).served_model(), "input": [USER]}
    body |= {"temperature": 0, "max_output_tokens": 60, "return_token_ids": True}
    first = post(storing, RESPONSES, **body, **more, store=True)
    ids = [*first["prompt_token_ids"], *first["token_ids"]]
    more["previous_response_id"] = first["id"]
    with refused("previous_response_id"):
        respond(storing, [USER], streaming, required_prefix_token_ids=ids, **more)
    second = respond(storing, [USER], streaming, **more)
    if second.prefix is not None and second.prefix["source"] != "template":
        assert second.prompt[: second.prefix["kept"]] == ids


def test_a_background_response_is_not_remembered(storing: Server) -> None:
    more: Json = {"instructions": "background", "max_output_tokens": 60}
    body = {"model": Subject(storing.base_url).served_model(), "input": [USER], **more}
    queued = post(storing, RESPONSES, **body, background=True, store=True)
    stored: Json = {}

    def is_complete() -> bool:
        url = f"{storing.base_url}{RESPONSES}/{queued['id']}"
        stored.update(requests.get(url, timeout=10).json())
        return bool(stored["status"] == "completed")

    wait_until(is_complete)
    assert "prefix" not in (stored["metadata"] or {})
    items = [USER, *stored["output"], USER]
    assert respond(storing, items, **more).prefix in NOT_REMEMBERED


@pytest.mark.usefixtures("slow_engine")
def test_a_disconnected_or_aborted_response_is_not_remembered(
    remembering: Server,
) -> None:
    user = {"role": "user", "content": line("long").question}
    for end in ("left", "aborted"):
        body: Json = {"model": Subject(remembering.base_url).served_model()}
        body |= {"input": [user], "instructions": end, "max_output_tokens": 400}
        body |= {"temperature": 0, "return_token_ids": True, "stream": True}
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
        turn = respond(remembering, items, system=end, max_output_tokens=3)
        assert turn.prefix in NOT_REMEMBERED
