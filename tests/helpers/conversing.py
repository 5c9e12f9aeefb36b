"""Conversations of several turns, as agents hold them, in text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import requests

from agentcore_verify import client
from agentcore_verify.checks.prefix import message_of
from agentcore_verify.client import Answer, HttpError
from agentcore_verify.scripted_model import line
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.endpoints import (
    CHAT,
    HISTORY_OF,
    LIMIT_OF,
    MESSAGES,
    RESPONSES,
    TOOLS_OF,
    events_in,
    ids_in,
)

Message = dict[str, Any]

QUESTIONS = (
    *("reasoning_then_tool", "plain", "reasoning", "two_tools"),
    *("tool", "emoji", "silent", "text_then_tool"),
)
"""The lines of the script that eight turns ask for."""

USER: Message = {"role": "user", "content": line("plain").question}
HELLO: Message = {"role": "assistant", "content": "Hello!"}

SYSTEM_OF = {MESSAGES: "system", RESPONSES: "instructions"}


@dataclass(frozen=True)
class Turn:
    """A turn at any endpoint.

    Attributes:
        prompt: the prompt's token IDs; empty if they were not requested.
        completion: the sampled token IDs, likewise.
        prefix: `metadata.prefix`.
        said: the answer as agents send it back, without reasoning.
        is_complete: True if `said` is the full answer: the tiny model breaks some calls.
        logprobs: the entries of a chat completion.
    """

    path: str
    prompt: list[int]
    completion: list[int]
    prefix: dict[str, Any] | None
    said: list[Message]
    is_complete: bool
    logprobs: tuple[Any, ...] = ()

    @property
    def ids(self) -> list[int]:
        return [*self.prompt, *self.completion]

    @property
    def missed(self) -> str:
        """The reason why the memory did not find the conversation."""
        assert self.prefix is not None
        assert self.prefix.keys() == {"source", "missed"}
        assert self.prefix["source"] == "template"
        missed: str = self.prefix["missed"]
        return missed

    @property
    def calls(self) -> list[str]:
        """The IDs of the tool calls."""
        if self.path == RESPONSES:
            return [item["call_id"] for item in self.said if "call_id" in item]
        [message] = self.said
        if self.path == CHAT:
            return [call["id"] for call in message.get("tool_calls", ())]
        return [one["id"] for one in message["content"] if one["type"] == "tool_use"]

    def then(self, question: str) -> list[Message]:
        """Return the answer and what follows it: tool results and the next question."""
        asked: Message = {"role": "user", "content": line(question).question}
        results = [(call, f"result {i}") for i, call in enumerate(self.calls)]
        if self.path == MESSAGES:
            blocks = [
                {"type": "tool_result", "tool_use_id": call, "content": result}
                for call, result in results
            ]
            asked["content"] = [*blocks, {"type": "text", "text": asked["content"]}]
            return [*self.said, asked]
        given = [
            {"type": "function_call_output", "call_id": call, "output": result}
            if self.path == RESPONSES
            else {"role": "tool", "tool_call_id": call, "content": result}
            for call, result in results
        ]
        return [*self.said, *given, asked]


def take_turn(
    server: Server,
    path: str,
    history: Any,
    streaming: bool = False,
    *,
    system: Any = None,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Turn:
    """Send a history to an endpoint, and return the turn; raise HttpError if refused."""
    if system is not None and path == CHAT:
        history = [{"role": "system", "content": system}, *history]
    elif system is not None:
        more = {SYSTEM_OF[path]: system, **more}
    body = {
        "model": Subject(server.base_url).served_model(),
        "temperature": 0,
        "return_token_ids": True,
        LIMIT_OF[path]: 60,
        HISTORY_OF[path]: history,
        "stream": streaming,
        **more,
    }
    url = server.base_url + path
    answer = requests.post(url, json=body, headers=headers, timeout=60)
    if answer.status_code != 200:
        raise HttpError(answer.status_code, answer.text)
    events = events_in(path, answer.text) if streaming else [answer.json()]
    if path == CHAT:
        read = (
            client.read_events if streaming else lambda one: client.read_response(*one)
        )
        return _chat_turn(read(events))
    if path == MESSAGES:
        return _message_turn(events)
    return _response_turn(events)


def _chat_turn(answer: Answer) -> Turn:
    assert answer.errors == ()
    completion = answer.completions[0]
    return Turn(
        CHAT,
        [*(answer.prompt_token_ids or ())],
        [*(completion.token_ids or ())],
        prefix_of(answer),
        [message_of(completion)],
        all(is_object(call.arguments) for call in completion.tool_calls),
        completion.logprobs or (),
    )


def _message_turn(events: list[Any]) -> Turn:
    first = events[0].get("message", events[0])
    blocks: list[Any] = first["content"]
    is_complete = True
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            if "text" in delta:
                blocks[-1]["text"] = (blocks[-1].get("text") or "") + delta["text"]
            blocks[-1]["json"] += delta.get("partial_json") or ""
    for block in blocks:
        arguments = block.pop("json", "")
        if block["type"] == "tool_use" and len(events) > 1:
            is_complete = is_complete and is_object(arguments)
            block["input"] = json.loads(arguments) if is_object(arguments) else {}
    return Turn(
        MESSAGES,
        first.get("prompt_token_ids", []),
        ids_in(events),
        first.get("metadata", {}).get("prefix"),
        [{"role": "assistant", "content": blocks}],
        is_complete,
    )


def _response_turn(events: list[Any]) -> Turn:
    response = events[-1].get("response", events[-1])
    prefix = (response["metadata"] or {}).get("prefix")
    if len(events) > 1:
        begun = events[0]["response"]
        assert events[0]["type"] == "response.created"
        assert (begun["metadata"] or {}).get("prefix") == prefix
    said = response["output"]
    calls = [item for item in said if item.get("type") == "function_call"]
    return Turn(
        RESPONSES,
        response.get("prompt_token_ids", []),
        response.get("token_ids", []),
        prefix,
        said,
        bool(said) and all(is_object(call["arguments"] or "{}") for call in calls),
    )


def is_object(text: str) -> bool:
    """True if a string is a JSON object, which SGLang requires of call arguments."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def prefix_of(answer: Answer) -> dict[str, Any] | None:
    """Return `metadata.prefix` of a chat answer, which has it at most once."""
    prefixes = [
        event["metadata"]["prefix"]
        for event in answer.events
        if "prefix" in (event.get("metadata") or {})
    ]
    assert len(prefixes) <= 1
    return prefixes[0] if prefixes else None


def converse(
    server: Server,
    path: str,
    how: str,
    streaming: bool = False,
    questions: tuple[str, ...] = QUESTIONS,
    **more: Any,
) -> list[Turn]:
    """Hold a conversation with tools; return its turns.

    `how` is the source of the earlier turns' tokens: "request", "message" (each message
    carries its own), or "server".
    """
    more = {"tools": TOOLS_OF[path], **more}
    history: list[Message] = []
    turns: list[Turn] = []
    for question in questions:
        if turns:
            history += turns[-1].then(question)
        else:
            history = [{"role": "user", "content": line(question).question}]
        turn = take_turn(server, path, history, streaming, **more)
        turns.append(turn)
        if how == "request":
            more["required_prefix_token_ids"] = turn.ids
        elif how == "message":
            carried = {"prompt_token_ids": turn.prompt}
            turn.said[0].update(carried, generation_token_ids=turn.completion)
    return turns
