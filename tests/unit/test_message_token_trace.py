"""IDs and logprobs of chat chunks, on the events that are made from them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from agentcore_patches.grafts.message_token_trace import (
    MessageTokenTrace,
    _add_token_trace,
)


def choice(*token_ids: int) -> SimpleNamespace:
    content = [SimpleNamespace(logprob=-token_id / 10) for token_id in token_ids]
    return SimpleNamespace(
        token_ids=list(token_ids) or None,
        logprobs=SimpleNamespace(content=content) if token_ids else None,
    )


def chunk(*token_ids: int, prompt: list[int] | None = None) -> Any:
    return SimpleNamespace(prompt_token_ids=prompt, choices=[choice(*token_ids)])


def test_the_message_gets_the_prompt_and_the_event_the_first_tokens() -> None:
    trace = MessageTokenTrace()
    trace.push(chunk(1, prompt=[5, 6]))
    event = json.loads(trace.stamp('{"type":"message_start","message":{"id":"x"}}'))
    assert event == {
        "type": "message_start",
        "message": {"id": "x", "prompt_token_ids": [5, 6]},
        "token_ids": [1],
        "token_logprobs": [-0.1],
    }


def test_chunks_without_an_event_wait_for_the_next_one() -> None:
    trace = MessageTokenTrace()
    trace.push(chunk(1, prompt=[5]))
    trace.stamp('{"message":{}}')
    trace.push(chunk(2))
    trace.push(chunk())
    trace.push(SimpleNamespace(prompt_token_ids=None, choices=[]))
    trace.push(chunk(3, 4))
    stamped = trace.stamp('{"delta":{"text":"é"}}')
    assert stamped == (
        '{"delta":{"text":"é"},"token_ids":[2,3,4],"token_logprobs":[-0.2,-0.3,-0.4]}'
    )
    assert trace.stamp('{"type":"message_stop"}') == '{"type":"message_stop"}'


def test_a_whole_message_gets_the_lists_of_the_chat_answer() -> None:
    message: Any = SimpleNamespace()
    response: Any = SimpleNamespace(prompt_token_ids=[5], choices=[choice(1, 2)])
    _add_token_trace(message, response)
    assert (message.prompt_token_ids, message.token_ids) == ([5], [1, 2])
    assert message.token_logprobs == [-0.1, -0.2]
