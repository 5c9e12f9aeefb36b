"""IDs and logprobs of chat lines, on the events made from these lines."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import messages, streams
from agentcore_patches.landing.messages import MessageTrace
from tests.helpers.events import collected, data_of, event


def chunk(*token_ids: int, prompt: list[int] | None = None) -> str:
    """Return a line of a chat stream, without its `data: `."""
    choice: dict[str, Any] = {"index": 0, "logprobs": None}
    if token_ids:
        content = [{"logprob": -token_id / 10} for token_id in token_ids]
        choice |= {"token_ids": list(token_ids), "logprobs": {"content": content}}
    said = {"choices": [choice], **({"prompt_token_ids": prompt} if prompt else {})}
    return json.dumps(said)


def test_the_message_gets_the_prompt_and_the_event_the_first_tokens() -> None:
    trace = MessageTrace()
    trace.push(chunk(1, prompt=[5, 6]))
    stamped = trace.stamp(event('{"type":"message_start","message":{"id":"x"}}'))
    assert data_of(stamped) == {
        "type": "message_start",
        "message": {"id": "x", "prompt_token_ids": [5, 6]},
        "token_ids": [1],
        "token_logprobs": [-0.1],
    }


def test_a_prompt_without_tokens_waits_for_the_message() -> None:
    trace = MessageTrace()
    trace.push(chunk(prompt=[5]))
    stamped = trace.stamp(event('{"message":{}}'))
    assert data_of(stamped) == {"message": {"prompt_token_ids": [5]}}


def test_chunks_without_an_event_wait_for_the_next_one() -> None:
    trace = MessageTrace()
    trace.push(chunk(1, prompt=[5]))
    trace.stamp(event('{"message":{}}'))
    trace.push(chunk(2))
    trace.push(chunk())
    trace.push('{"choices":[]}')
    trace.push(chunk(3, 4))
    stamped = trace.stamp(event('{"delta":{"text":"é"}}'))
    assert stamped == event(
        '{"delta":{"text":"é"},"token_ids":[2,3,4],"token_logprobs":[-0.2,-0.3,-0.4]}'
    )
    assert trace.stamp(event('{"type":"message_stop"}')) == event(
        '{"type":"message_stop"}'
    )


def test_the_first_of_several_events_in_a_string_is_stamped() -> None:
    trace = MessageTrace()
    trace.push(chunk(1, prompt=[5]))
    both = streams.events_of(event('{"message":{}}') + event('{"index":0}'))
    first, second = map(trace.stamp, map(str, both))
    assert data_of(first)["token_ids"] == [1]
    assert second == event('{"index":0}')


@pytest.mark.parametrize(
    ("matched", "reason", "said"),
    [
        ("###", "end_turn", {"stop_reason": "stop_sequence", "stop_sequence": "###"}),
        ("###", "tool_use", {"stop_reason": "tool_use"}),
        (151645, "end_turn", {"stop_reason": "end_turn"}),
    ],
)
def test_the_last_delta_has_the_matched_stop_sequence(
    matched: object, reason: str, said: dict[str, str]
) -> None:
    trace = MessageTrace()
    trace.push(json.dumps({"choices": [{"matched_stop": matched}]}))
    stop = event('{"type":"content_block_stop","index":0}')
    assert data_of(trace.stamp(stop)) == data_of(stop)
    delta = {"type": "message_delta", "delta": {"stop_reason": reason}}
    stamped = trace.stamp(event(json.dumps(delta)))
    assert data_of(stamped) == {"type": "message_delta", "delta": said}
    assert trace.stamp(stop) == stop


def test_a_non_streaming_message_gets_the_lists_of_the_chat_response() -> None:
    message: Any = SimpleNamespace(stop_reason="end_turn")
    content = [SimpleNamespace(logprob=-0.1), SimpleNamespace(logprob=-0.2)]
    logprobs = SimpleNamespace(content=content)
    choice = SimpleNamespace(token_ids=[1, 2], logprobs=logprobs, matched_stop="###")
    response: Any = SimpleNamespace(prompt_token_ids=[5], choices=[choice])
    messages.add_to_message(message, response)
    assert (message.prompt_token_ids, message.token_ids) == ([5], [1, 2])
    assert message.token_logprobs == [-0.1, -0.2]


def stream(asked: bool, *, closed: list[bool], ends: bool = True) -> Any:
    @messages.events
    async def generate(
        self: Any, adapted: Any, anthropic_request: Any, raw: Any, trace: Any = None
    ) -> AsyncIterator[str]:
        try:
            if trace is not None:
                trace.push(chunk(1, prompt=[5]))
            yield event('{"message":{}}')
            if trace is not None:
                trace.push(chunk(2))
            if ends:
                yield event('{"index":0}')
        finally:
            closed.append(True)

    return generate(None, None, SimpleNamespace(return_token_ids=asked), None)


def test_events_are_stamped_on_request_and_the_stream_is_closed() -> None:
    closed: list[bool] = []
    said = collected(stream(True, closed=closed))
    assert [data_of(one).get("token_ids") for one in said] == [[1], [2]]
    assert collected(stream(False, closed=closed)) == [
        event('{"message":{}}'),
        event('{"index":0}'),
    ]
    assert len(collected(stream(True, closed=closed), 1)) == 1
    assert closed == [True] * 3


def test_token_ids_without_an_event_to_carry_them_are_an_error() -> None:
    *_, last = collected(stream(True, closed=[], ends=False))
    assert data_of(last)["type"] == "error"
    assert "all token IDs were sent" in data_of(last)["error"]["message"]


def refusal(message: str, code: int) -> str:
    """Return the line with which a chat stream reports a failure."""
    error = {"object": "error", "message": message, "type": "x", "code": code}
    return f"data: {json.dumps({'error': error})}\n\n"


def until_error(*lines: str | Exception, closed: list[bool] | None = None) -> list[str]:
    async def chat() -> AsyncGenerator[str, None]:
        try:
            for one in lines:
                if isinstance(one, Exception):
                    raise one
                yield one
        finally:
            if closed is not None:
                closed.append(True)

    return collected(messages.until_error(chat()))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
        (None, "api_error"),
    ],
)
def test_the_stream_ends_at_the_first_error_of_chat(code: int, kind: str) -> None:
    closed: list[bool] = []
    first = 'data: {"id": "x"}\n\n'
    failed = refusal("too long", code)
    said = until_error(first, failed, "data: [DONE]\n\n", closed=closed)
    assert said[0] == first
    assert said[1].startswith("event: error\n")
    error = {"type": kind, "message": "too long"}
    assert [data_of(one) for one in said[1:]] == [{"type": "error", "error": error}]
    assert closed == [True]


def test_a_value_error_of_chat_becomes_an_event_and_others_are_raised() -> None:
    [said] = until_error(ValueError("no such ID"))
    assert data_of(said)["error"] == {
        "type": "invalid_request_error",
        "message": "no such ID",
    }
    with pytest.raises(KeyError):
        until_error(KeyError("x"))


def test_a_stream_without_an_error_is_left_alone() -> None:
    lines = [
        'data: {"id": "error"}\n\n',
        'data: {"error"\n\n',
        "data: [DONE]\n\n",
    ]
    assert until_error(*lines) == lines


class Serving:
    """Answers with the arguments of its error."""

    def _error_response(self, **said: Any) -> dict[str, Any]:
        return said


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (500, "api_error"), (503, "overloaded_error")],
)
def test_an_error_of_chat_is_passed_on(status: int, kind: str) -> None:
    body = json.dumps({"message": "top_p must be in (0, 1]", "code": status}).encode()
    response: Any = SimpleNamespace(status_code=status, body=body)
    serving: Any = Serving()
    assert messages.pass_on(serving, response) == {
        "status_code": status,
        "error_type": kind,
        "message": "top_p must be in (0, 1]",
    }


def test_a_request_that_cannot_be_converted_is_a_400() -> None:
    serving: Any = Serving()
    assert messages.refuse(serving, ValueError("no such roles")) == {
        "status_code": 400,
        "error_type": "invalid_request_error",
        "message": "no such roles",
    }
