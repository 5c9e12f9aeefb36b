"""Streams as forks may write them, and streams of messages that end with an error."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import nullcontext
from typing import Any

import pytest

from agentcore_patches.landing.http import (
    messages,
    metrics,
    streams,
    traces,
)
from tests.helpers.events import collected, data_of
from tests.unit.small_server import DONE, chat_endpoint, choice_of, line_of

CHAT = (
    *(line_of(choice_of(0, text)) for text in "ab"),
    line_of(choice_of(0, "c", "stop")),
    DONE,
)
OUTPUT: dict[str, Any] = {
    "prompt_token_ids": [5],
    "output_ids": [1, 2],
    "meta_info": {
        "output_token_logprobs": [(-0.1, 1, None), (-0.2, 2, None)],
        "finish_reason": None,
    },
}


def rewritten(*strings: Any, error: BaseException | None = None) -> list[Any]:
    """Add token IDs to the strings of a stream, which may end with SGLang's error."""

    async def lines() -> AsyncGenerator[Any, None]:
        for string in strings:
            yield string
        if error is not None:
            raise error

    trace = traces.Trace(True)
    trace.push(0, OUTPUT)
    return collected(traces.rewrite(chat_endpoint(), lines(), trace.stamp, trace.end))


def raw_of(strings: list[Any]) -> bytes:
    return b"".join(one if isinstance(one, bytes) else one.encode() for one in strings)


def joined(strings: list[Any]) -> str:
    return raw_of(strings).decode()


def data_in(text: str) -> list[Any]:
    """Return a stream's events: the part before the data, and the data."""
    events = []
    for one in text.replace("\r\n", "\n").strip("\n").split("\n\n"):
        start, _, data = one.partition("data:")
        is_json = data.strip() not in ("", "[DONE]")
        events.append((start, json.loads(data) if is_json else data.strip()))
    return events


WAYS: dict[str, Callable[[tuple[str, ...]], list[Any]]] = {
    "one string": lambda events: ["".join(events)],
    "bytes and empty strings": lambda events: [
        part for one in events for part in (one.encode(), "", b"")
    ],
    "CRLF in one string": lambda events: ["".join(events).replace("\n", "\r\n")],
    "a line each": lambda events: [
        line for one in events for line in one.splitlines(keepends=True)
    ],
    "no space after the colon": lambda events: [
        one.replace("data: ", "data:") for one in events
    ],
    "no blank line at the end": lambda events: ["".join(events)[:-2]],
}


@pytest.mark.parametrize("way", WAYS)
def test_events_get_the_same_fields_however_they_are_split(way: str) -> None:
    expected = data_in(joined(rewritten(*CHAT)))
    assert expected != data_in("".join(CHAT)), "nothing was added"
    strings = WAYS[way](CHAT)
    found = joined(rewritten(*strings))
    assert data_in(found) == expected
    assert found.count("\r\n") == joined(strings).count("\r\n")


UNPARSED = [
    "\r\n\r\n",
    ": keep-alive",
    ": data: {",
    "event: ping\ndata:\n\n",
    "data: [1]\n\n",
    'data: {"response":{"finish_reason":"\n\n',
    "data: {\ndata: }\n\n",
    b"\xc3",
]


@pytest.mark.parametrize("string", UNPARSED)
def test_lines_without_a_json_object_pass_unchanged(string: str | bytes) -> None:
    found = rewritten(string, *CHAT, string)
    raw = string.encode() if isinstance(string, str) else string
    assert raw_of(found) == raw + raw_of(rewritten(*CHAT)) + raw


def test_an_error_while_adding_fields_becomes_an_error_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counted: list[str] = []
    monkeypatch.setattr(metrics, "count", counted.append)
    monkeypatch.setattr(traces.Trace, "stamp", lambda self, line: line.planted)
    error, done = rewritten(*CHAT)
    assert "has no attribute 'planted'" in data_of(error)["error"]
    assert (done, counted) == (DONE, [metrics.STREAM_ERRORS])
    [record] = caplog.records
    assert record.exc_info is not None and record.exc_info[0] is AttributeError


# Before 3.11, Python's event loop drops the message of a cancellation.
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError, "SGLang's own"),
        (asyncio.CancelledError, "SGLang's own" if sys.version_info >= (3, 11) else ""),
    ],
)
def test_an_error_of_sglang_passes_unchanged(
    error: type[BaseException], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(error, match=message):
        rewritten(CHAT[0], error=error("SGLang's own"))
    assert not caplog.records


@pytest.mark.parametrize(
    "delivered", [{}, {"output_ids": None, "meta_info": {}}, {"output_ids": [1]}, None]
)
def test_incomplete_engine_results_raise_an_error_that_sglang_catches(
    delivered: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(streams.StreamError, match="agentcore-patch failed"):
        traces.Trace(True).push(0, delivered)
    assert len(caplog.records) == 1


def test_a_message_that_failed_carries_no_tokens_and_is_not_counted() -> None:
    trace = messages.MessageTrace(True)
    reason = {"type": "abort", "message": "nan", "status_code": 400}
    trace.push(
        0, {**OUTPUT, "meta_info": {**OUTPUT["meta_info"], "finish_reason": reason}}
    )
    stop = 'data: {"type":"content_block_stop","index":0}\n\n'
    assert trace.stamp(stop) == stop
    trace.end()
    assert trace.failed


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (404, "not_found_error"),
        (500, "api_error"),
        # Chat may raise it.
        (ValueError("too long"), "invalid_request_error"),
        (KeyError("x"), ""),
    ],
)
def test_a_message_stream_ends_at_the_first_error_of_chat(
    error: int | Exception | None, kind: str
) -> None:
    closed = []

    async def chat() -> AsyncGenerator[str, None]:
        try:
            yield CHAT[0]
            if isinstance(error, Exception):
                raise error
            said = {"message": "too long", "code": error}
            yield f"data: {json.dumps({'error': said})}\n\n"
            yield DONE
        finally:
            closed.append(True)

    with nullcontext() if kind else pytest.raises(KeyError):
        first, last = collected(messages.until_error(chat()))
        assert first == CHAT[0] and last.startswith("event: error\n")
        made = {"type": kind, "message": "too long"}
        assert data_of(last) == {"type": "error", "error": made}
    assert closed
