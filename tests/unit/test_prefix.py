"""`metadata.prefix` in the stream of a turn, and the answers recorded from it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import prefix, traces
from agentcore_patches.landing.exchanges import Exchange
from agentcore_patches.landing.remembered import Conversation, Head
from tests.helpers.events import collected, data_of

METADATA = {"required": 3, "kept": 3, "source": "request"}
CONVERSATION = Conversation(Head.of(["m"]), [])


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
    turn = prefix.Turn(conversation=CONVERSATION, reasoning_parser=None)
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
    turn = prefix.Turn(conversation=None, reasoning_parser=None)
    turn.metadata = METADATA
    trace = kind(incremental=True)

    async def generate(*args: Any, trace: Any) -> AsyncIterator[str]:
        yield line_of("a")

    streamed: Any = prefix.streamed(generate)
    request = SimpleNamespace(_exchange=Exchange(turn=turn))
    [line] = collected(streamed(None, None, request, trace=trace))

    assert trace.metadata == in_trace
    assert data_of(line).get("metadata") == in_line


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
