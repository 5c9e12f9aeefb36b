"""Conversations of several turns, as agents hold them, in text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentcore_verify import client
from agentcore_verify.client import Answer, Completion, ToolCall
from agentcore_verify.scripted_model import TOOLS, line

Message = dict[str, Any]

QUESTIONS = (
    *("reasoning_then_tool", "plain", "reasoning", "two_tools"),
    *("tool", "emoji", "silent", "text_then_tool"),
)
"""The lines of the script that eight turns ask for."""


BAD_PREFIXES: tuple[tuple[dict[str, Any], str], ...] = tuple(
    ({"required_prefix_token_ids": value}, words)
    for value, words in (
        ([-1], "must be from 0 to 447"),
        ([[7]], "flat list of integers"),
        # Some releases read it as a float.
        ([2**70], "required_prefix_token_ids"),
        ("7", "required_prefix_token_ids"),
        ([7] * 40000, "longer than"),
    )
)
"""Prefixes that every endpoint refuses, and words of the refusal."""


def body(messages: list[Message], **more: Any) -> dict[str, Any]:
    return {
        "messages": messages,
        "tools": list(TOOLS),
        "temperature": 0,
        "max_tokens": 60,
        **more,
    }


def message_of(completion: Completion) -> Message:
    """Return the assistant's message as clients send it back: without reasoning."""
    message: Message = {"role": "assistant", "content": completion.content}
    if completion.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id or f"call_{position}",
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for position, call in enumerate(completion.tool_calls)
        ]
    return message


def is_sent_back(completion: Completion) -> bool:
    """True if `message_of` has the full answer: the tiny model breaks some calls."""
    return all(_arguments(call) == call.arguments for call in completion.tool_calls)


def _arguments(call: ToolCall) -> str:
    """Return the arguments of a call; empty if SGLang would not accept them back."""
    return call.arguments if is_object(call.arguments) else "{}"


def is_object(text: str) -> bool:
    """True if a string is a JSON object, which SGLang requires of call arguments."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def follow_up(completion: Completion, question: str) -> list[Message]:
    """Return the messages after an answer: tool results and the next question."""
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"result {position}"}
        for position, call in enumerate(message_of(completion).get("tool_calls", ()))
    ]
    return [*results, {"role": "user", "content": line(question).question}]


def ids_of(answer: Answer, choice: int = 0) -> list[int]:
    """Return the token IDs of a turn: its prompt and one choice's completion."""
    completion = answer.completions[choice]
    return [*(answer.prompt_token_ids or ()), *(completion.token_ids or ())]


def prefix_of(answer: Answer) -> dict[str, Any] | None:
    prefixes = [
        event["metadata"]["prefix"]
        for event in answer.events
        if "prefix" in (event.get("metadata") or {})
    ]
    assert len(prefixes) <= 1
    return prefixes[0] if prefixes else None


def billing_header(number: int) -> str:
    """First line of Claude Code's system prompt, which differs in each request."""
    return (
        f"x-anthropic-billing-header: cc_version=2.1.107.3d9; cc_entrypoint=cli; "
        f"cch={number:05};"
    )


def turns(
    base_url: str, how: str, questions: tuple[str, ...] = QUESTIONS, **more: Any
) -> Iterator[Answer]:
    """Hold a conversation; yield its answers.

    `how` is the source of the earlier turns' tokens: "request", "message" (each message
    carries its own), or "server".
    """
    messages: list[Message] = []
    asked: dict[str, Any] = {}
    completion: Completion | None = None
    for question in questions:
        if completion is None:
            messages += [{"role": "user", "content": line(question).question}]
        else:
            messages += follow_up(completion, question)
        answer = client.ask(base_url, **body(messages, **asked, **more))
        yield answer
        completion = answer.completions[0]
        message = message_of(completion)
        if how == "request":
            asked = {"required_prefix_token_ids": ids_of(answer)}
        elif how == "message":
            message["prompt_token_ids"] = list(answer.prompt_token_ids or ())
            message["generation_token_ids"] = list(completion.token_ids or ())
        messages.append(message)
