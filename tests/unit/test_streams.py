"""Streams as forks may write them, and errors while fields are added.

Each case runs on every stream rewriter: chat, completions, /v1/messages and
/v1/responses.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.landing import (
    messages,
    prefix,
    release,
    responses,
    streams,
    traces,
)
from agentcore_patches.landing.exchanges import Exchange
from tests.helpers.events import collected, event

DONE = "data: [DONE]\n\n"


def chunk(content: str, finish_reason: str | None = None) -> str:
    """Return a chat event, as SGLang writes it."""
    choice = {"index": 0, "delta": {"content": content}, "logprobs": None}
    choice["finish_reason"] = finish_reason
    data = json.dumps({"id": "x", "choices": [choice]}, separators=(",", ":"))
    return f"data: {data}\n\n"


def result(*token_ids: int) -> Any:
    """Return the engine's result, with its weight versions."""
    entries = [(-token_id / 10, token_id, None) for token_id in token_ids]
    return {
        "prompt_token_ids": [5, 6],
        "output_ids": list(token_ids),
        "meta_info": {
            "output_token_logprobs": entries,
            "weight_versions": [],
            "finish_reason": {"type": "stop"},
        },
    }


CHAT = (chunk("a"), chunk("b"), chunk("c", "stop"), DONE)
MESSAGE = tuple(
    event(data)
    for data in (
        '{"type":"message_start","message":{"id":"m"}}',
        '{"type":"content_block_delta","delta":{"text":"é"}}',
        '{"type":"message_stop"}',
    )
)
RESPONSE = tuple(
    event(data)
    for data in (
        '{"type":"response.created","response":{"id":"r","metadata":null}}',
        '{"type":"response.output_text.delta","delta":"é"}',
        '{"type":"response.completed",'
        '"response":{"id":"r","metadata":null,"output":[]}}',
    )
)

SERVING: Any = SimpleNamespace(
    tokenizer_manager=SimpleNamespace(server_args=SimpleNamespace(stream_output=True)),
    create_streaming_error_response=lambda message: json.dumps({"error": message}),
)


def of_chat(lines: Any) -> Any:
    trace = traces.Trace(True)
    trace.push(0, result(1, 2))
    return traces._stamped(SERVING, trace, lines)


def of_ends(lines: Any) -> Any:
    trace = traces.EndTrace(True, at_end=[traces._versions])
    trace.push(0, result(1, 2))
    return traces._stamped(SERVING, trace, lines)


def of_prefix(lines: Any) -> Any:
    def generate(self: Any, adapted: Any, request: Any, trace: Any) -> Any:
        trace.push(0, result(1, 2))
        return lines

    turn = prefix.Turn(None, reasoning_parser=None, longest=99)
    turn.metadata = {"required": 3, "kept": 3}
    request = SimpleNamespace(_exchange=Exchange(turn=turn))
    return prefix.streamed(generate)(SERVING, None, request)


def of_message(lines: Any) -> Any:
    def generate(anthropic_request: Any, trace: Any = None) -> Any:
        content = [{"logprob": -0.1}]
        choice = {"token_ids": [1], "logprobs": {"content": content}}
        trace.push(json.dumps({"prompt_token_ids": [5], "choices": [choice]}))
        return lines

    return messages.events(generate)(SimpleNamespace(return_token_ids=True))


def of_response(lines: Any) -> Any:
    trace = responses.ResponseTrace(incremental=False)
    trace.push(0, result(1, 2))
    return responses._stamped(trace, lines)


@dataclass(frozen=True)
class Rewriter:
    """The rewriter of one endpoint's streams.

    Attributes:
        start: rewrites a stream.
        events: the events of a stream that it rewrites.
        fails: the function that an error is planted in.
        last: the start of an error event.
    """

    start: Callable[[Any], Any]
    events: tuple[str, ...]
    fails: str
    last: tuple[str, ...]


_TRACE = "agentcore_patches.landing.traces.Trace"
_RESPONSE = "agentcore_patches.landing.responses.ResponseTrace"
_EVENT = "agentcore_patches.landing.streams.Event"
OPENAI = ("data: {", DONE)
TYPED = ('event: error\ndata: {"type":"error"',)

REWRITERS = {
    "chat": Rewriter(of_chat, CHAT, f"{_TRACE}._take", OPENAI),
    "ends": Rewriter(of_ends, CHAT, f"{_TRACE}._last_words", OPENAI),
    "prefix": Rewriter(of_prefix, CHAT, f"{_EVENT}.text", OPENAI),
    "message": Rewriter(of_message, MESSAGE, f"{_EVENT}.text", TYPED),
    "response": Rewriter(of_response, RESPONSE, f"{_RESPONSE}.take", TYPED),
}
every_rewriter = pytest.mark.parametrize("name", REWRITERS)


def rewritten(name: str, *strings: Any) -> list[Any]:
    """Return the strings of a stream after its fields have been added."""

    async def stream() -> AsyncIterator[Any]:
        for string in strings:
            yield string

    return collected(REWRITERS[name].start(stream()))


def raw_of(strings: list[Any]) -> bytes:
    return b"".join(one if isinstance(one, bytes) else one.encode() for one in strings)


def joined(strings: list[Any]) -> str:
    return raw_of(strings).decode()


def said(text: str) -> list[Any]:
    """Return a stream's events: the part before the data, and the data."""
    events = []
    for one in text.replace("\r\n", "\n").strip("\n").split("\n\n"):
        start, _, data = one.partition("data:")
        is_json = data.strip() not in ("", "[DONE]")
        events.append((start, json.loads(data) if is_json else data.strip()))
    return events


WAYS: dict[str, Callable[[tuple[str, ...]], list[Any]]] = {
    "one string": lambda events: ["".join(events)],
    "bytes": lambda events: [one.encode() for one in events],
    "one string of bytes": lambda events: ["".join(events).encode()],
    "empty strings between": lambda events: [
        part for one in events for part in (one, "", b"")
    ],
    "CRLF": lambda events: [one.replace("\n", "\r\n") for one in events],
    "CRLF in one string": lambda events: ["".join(events).replace("\n", "\r\n")],
    "a line each": lambda events: [
        line for one in events for line in one.splitlines(keepends=True)
    ],
    "no space after the colon": lambda events: [
        one.replace("data: ", "data:") for one in events
    ],
    "no blank line at the end": lambda events: ["".join(events)[:-2]],
    "one newline at the end": lambda events: ["".join(events)[:-1]],
    "the end of lines apart": lambda events: [
        part for one in events for part in (one[:-2], one[-2:])
    ],
}


@every_rewriter
@pytest.mark.parametrize("way", WAYS)
def test_events_get_the_same_fields_however_they_are_split(name: str, way: str) -> None:
    events = REWRITERS[name].events
    expected = said(joined(rewritten(name, *events)))
    assert expected != said("".join(events)), "nothing was added"
    strings = WAYS[way](events)
    found = joined(rewritten(name, *strings))
    assert said(found) == expected
    assert found.count("\r\n") == joined(strings).count("\r\n")


UNPARSED = [
    "",
    "\n",
    "\n\n",
    "\n\n\n",
    "\r\n\r\n",
    ": keep-alive",
    ": keep-alive\n",
    ": keep-alive\r\n\r\n",
    ": data: {",
    "event: ping\n\n",
    "event: ping\ndata:\n\n",
    "retry: 5\n",
    "data: 5\n\n",
    "data: [1]\n\n",
    "data: null\n\n",
    'data: "response":{\n\n',
    'data: {"response":{"finish_reason":"\n\n',
    "data: {\ndata: }\n\n",
    "é\n",
    b"\xc3",
    b"\xff\xfe\n\n",
    "🙂".encode()[:2],
]


@every_rewriter
@pytest.mark.parametrize("string", UNPARSED)
def test_lines_without_a_json_object_pass_unchanged(
    name: str, string: str | bytes
) -> None:
    events = REWRITERS[name].events
    expected = rewritten(name, *events)
    found = rewritten(name, string, *events, string)
    raw = string.encode() if isinstance(string, str) else string
    assert raw_of(found) == raw + raw_of(expected) + raw


@every_rewriter
@given(data=st.data())
def test_no_byte_is_lost_wherever_events_are_split(name: str, data: Any) -> None:
    """Half an event passes unchanged; its tokens go on the next, or cause an error."""
    text = "".join(REWRITERS[name].events).encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    ends = [0, *cuts, len(text)]
    strings = [text[start:end] for start, end in itertools.pairwise(ends)]
    found = joined(rewritten(name, *strings))
    events = said(found)
    if "error" in found:
        assert "had a place for them" in found
    for start, sent in said(text.decode()):
        kept = [one for before, one in events if before == start]
        assert any(holds(one, sent) for one in kept), sent


def holds(found: Any, sent: Any) -> bool:
    """True if an event has all sent fields that are not None."""
    if isinstance(sent, dict):
        return isinstance(found, dict) and all(
            holds(found.get(key), value) for key, value in sent.items()
        )
    if isinstance(sent, list):
        return isinstance(found, list) and all(map(holds, found, sent))
    return sent is None or bool(found == sent)


@pytest.fixture(params=[AttributeError, LookupError, TypeError, ValueError])
def planted(
    request: pytest.FixtureRequest, name: str, monkeypatch: pytest.MonkeyPatch
) -> type[Exception]:
    """An error in the code that adds fields to the stream."""
    kind: type[Exception] = request.param

    def fail(*args: Any) -> Any:
        raise kind("planted")

    monkeypatch.setattr(REWRITERS[name].fails, fail)
    return kind


@every_rewriter
def test_an_error_while_adding_fields_becomes_an_error_event(
    name: str, planted: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    rewriter = REWRITERS[name]
    closed: list[bool] = []

    async def stream() -> AsyncIterator[str]:
        try:
            for one in rewriter.events:
                yield one
        finally:
            closed.append(True)

    found = collected(rewriter.start(stream()))
    last = found[-len(rewriter.last) :]
    for one, start in zip(last, rewriter.last, strict=True):
        assert one.startswith(start)
    assert "planted" in last[0]
    assert planted is ValueError or planted.__name__ in last[0]
    assert found.count(DONE) == rewriter.last.count(DONE)
    assert closed == [True]
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[0] is planted


@every_rewriter
@pytest.mark.parametrize(
    "error", [AttributeError, TypeError, ValueError, asyncio.CancelledError]
)
def test_an_error_of_sglang_passes_unchanged(
    name: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    planted = error("SGLang's own")

    async def stream() -> AsyncIterator[str]:
        yield REWRITERS[name].events[0]
        raise planted

    lines = REWRITERS[name].start(stream())

    async def read() -> None:
        with pytest.raises(error) as raised:
            async for _ in lines:
                pass
        assert raised.value is planted

    asyncio.run(read())
    assert not caplog.records


@pytest.mark.parametrize("name", ["chat", "prefix"])
@pytest.mark.usefixtures("planted")
def test_sglang_answers_an_error_before_the_first_line_if_it_can(
    name: str, planted: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "FIRST_LINE_BEFORE_STATUS", True)
    with pytest.raises(planted, match="planted"):
        rewritten(name, *REWRITERS[name].events)


@pytest.mark.parametrize(
    "delivered", [{}, {"output_ids": None, "meta_info": {}}, {"output_ids": [1]}, None]
)
def test_incomplete_engine_results_raise_an_error_that_sglang_catches(
    delivered: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for trace in (traces.Trace(True), responses.ResponseTrace(incremental=True)):
        with pytest.raises(streams.StreamError, match="agentcore-patch failed"):
            trace.push(0, delivered)
    assert len(caplog.records) == 2
