"""`metadata.prefix` in the stream of a turn, and the answers recorded from it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import conversations, prefix, traces
from agentcore_patches.landing.exchanges import Exchange
from agentcore_patches.landing.remembered import Conversation, Memory
from tests.helpers.events import collected, data_of

METADATA = {"required": 3, "kept": 3, "source": "request"}
CONVERSATION = Conversation.of(None, ["m"] * 5)


def line_of(content: str) -> str:
    chunk = {"choices": [{"index": 0, "delta": {"content": content}}]}
    return f"data: {json.dumps(chunk)}\n\n"


@pytest.mark.parametrize(
    "strings",
    [
        [line_of("a"), line_of("b"), "data: [DONE]\n\n"],
        [line_of("a") + line_of("b") + "data: [DONE]\n\n"],
        [line_of("a").encode(), line_of("b").encode(), b"data: [DONE]\n\n"],
    ],
    ids=["a string each", "one string", "bytes"],
)
def test_the_first_event_has_the_prefix_and_all_are_recorded(
    strings: list[Any],
) -> None:
    turn = prefix.Turn(CONVERSATION, reasoning_parser=None, longest=99)
    turn.metadata = METADATA

    async def generate(*args: Any, trace: Any) -> AsyncIterator[Any]:
        for string in strings:
            yield string

    server_args = SimpleNamespace(stream_output=False)
    serving: Any = SimpleNamespace(
        tokenizer_manager=SimpleNamespace(server_args=server_args)
    )
    request = SimpleNamespace(_exchange=Exchange(turn=turn))
    lines = collected(prefix.streamed(generate)(serving, None, request))

    first, second, done = lines
    assert data_of(first)["metadata"] == {"prefix": METADATA}
    assert (second, done) == (line_of("b"), "data: [DONE]\n\n")
    assert turn.answers[0].content == "ab"


@pytest.mark.parametrize(
    ("kind", "in_trace", "in_line"),
    [
        (traces.Trace, {"prefix": METADATA}, None),
        (traces.EndTrace, {}, {"prefix": METADATA}),
    ],
)
def test_the_metadata_is_written_once(kind: Any, in_trace: Any, in_line: Any) -> None:
    turn = prefix.Turn(None, reasoning_parser=None, longest=99)
    turn.metadata = METADATA
    trace = kind(incremental=True)

    async def generate(*args: Any, trace: Any) -> AsyncIterator[str]:
        yield line_of("a")

    streamed: Any = prefix.streamed(generate)
    request = SimpleNamespace(_exchange=Exchange(turn=turn))
    [line] = collected(streamed(None, None, request, trace=trace))

    assert trace.metadata == in_trace
    assert data_of(line).get("metadata") == in_line


def test_the_cost_of_a_long_stream_is_linear() -> None:
    def seconds(n_chunks: int) -> float:
        answer = prefix.Answer()
        text = {"content": "four"}
        call = {"tool_calls": [{"index": 0, "function": {"arguments": "four"}}]}
        began = time.process_time()
        for _ in range(n_chunks):
            answer.add(text)
            answer.add(call)
        assert len(answer.content) == 4 * n_chunks
        [made] = answer.tool_calls
        assert len(made.function.arguments) == 4 * n_chunks
        return time.process_time() - began

    once, twice = (
        min(seconds(n_chunks) for _ in range(15)) for n_chunks in (20_000, 40_000)
    )
    assert twice < 2.3 * once


def test_the_deltas_of_tool_calls_are_joined_by_index() -> None:
    answer = prefix.Answer()
    for index, function in (
        (1, {"name": "g", "arguments": ""}),
        (None, {"name": "f"}),
        (1, {"name": None, "arguments": '{"a"'}),
        (0, {"arguments": "{}"}),
        (1, {"arguments": ": 1}"}),
    ):
        answer.add({"tool_calls": [{"index": index, "function": function}]})
    answer.add({"content": None})
    calls = [
        (call.function.name, call.function.arguments) for call in answer.tool_calls
    ]
    assert calls == [("f", "{}"), ("g", '{"a": 1}')]
    assert answer.content == ""


class Body(SimpleNamespace):
    """A request model."""

    def model_dump(self, include: set[str]) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name in include}


@pytest.mark.parametrize(
    ("chat", "response", "chooses"),
    [
        ({}, None, False),
        ({"tool_choice": "none"}, {}, False),
        ({"response_format": {"type": "text"}, "regex": None}, {"text": None}, False),
        ({}, {"text": {"format": {"type": "text"}}}, False),
        ({}, {"text": {}}, False),
        ({"logit_bias": {}, "stop": "a", "temperature": 2}, None, False),
        ({"tool_choice": "required"}, None, True),
        ({"tool_choice": SimpleNamespace(function="f")}, None, True),
        ({"response_format": {"type": "structural_tag"}}, None, True),
        ({"custom_logit_processor": "{}"}, None, True),
        ({"custom_logit_processor": [None, "{}"]}, None, True),
        ({"structured_outputs": {"choice": ["a"]}}, None, True),
        ({}, {"text": {"format": {"type": "json_object"}}}, True),
    ],
)
def test_a_request_that_can_choose_its_answer_is_recognized(
    chat: Any, response: Any, chooses: bool
) -> None:
    request: Any = Body(**{"tool_choice": "auto", **chat})
    made: Any = None if response is None else Body(**response)
    assert prefix._chooses_answer(request, made) == chooses


def test_clients_are_told_apart_by_either_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def client(**headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        raw: Any = SimpleNamespace(headers=named)
        return prefix.client_of(raw)

    assert client(authorization="a") is None
    monkeypatch.setattr(conversations, "memory", lambda: Memory(1))
    clients = [
        prefix.client_of(None),
        client(authorization="a"),
        client(authorization="b"),
        client(x_api_key="a"),
        client(authorization="a", x_api_key="a"),
    ]
    assert len({*clients}) == len(clients)
    assert client(other="a") == clients[0]
    assert client(authorization="a") == clients[1]


def test_a_message_without_a_turn_is_left_alone() -> None:
    async def generate(processed_request: Any) -> AsyncIterator[str]:
        yield event

    event = 'event: message_start\ndata: {"type":"message_start","message":{}}\n\n'
    assert collected(prefix.events(generate)(object())) == [event]


def test_two_calls_of_one_index_are_recorded_apart() -> None:
    answer = prefix.Answer()
    for id_, function in (
        ("a", {"name": "f", "arguments": ""}),
        (None, {"name": None, "arguments": "{}"}),
        ("b", {"name": "f", "arguments": ""}),
        (None, {"arguments": "[]"}),
    ):
        answer.add({"tool_calls": [{"index": 1, "id": id_, "function": function}]})
    functions = [vars(call.function) for call in answer.tool_calls]
    assert functions == [
        {"name": "f", "arguments": "{}"},
        {"name": "f", "arguments": "[]"},
    ]
