"""Format an answer like the models of each family: thinking, text and tool calls.

`reasoning_content` is there if the model thinks, and empty where it thought nothing.
"""

# ruff: noqa: RUF001  (DeepSeek's tokens have a fullwidth vertical line)

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Message = Mapping[str, Any]


def qwen3(message: Message) -> str:
    """The thinking and tool calls as JSON, between tags."""
    calls = (
        f'<tool_call>\n{{"name":  "{name}", "arguments": {_odd(arguments)}}}\n</tool_call>'
        for name, arguments, _ in _calls(message)
    )
    said = "\n".join(filter(None, (message["content"], *calls)))
    return f"<think>\n{message['reasoning_content']}\n</think>\n\n{said}"


def deepseek_v3_1(message: Message) -> str:
    """The thinking, which the prompt has begun, then text and tool calls."""
    thinking = ""
    if message["reasoning_content"]:
        thinking = message["reasoning_content"] + "</think>"
    calls = [
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{_odd(arguments)}<｜tool▁call▁end｜>"
        for name, arguments, _ in _calls(message)
    ]
    section = _section("<｜tool▁calls▁begin｜>", calls, "<｜tool▁calls▁end｜>")
    return f"{thinking}{message['content']}{section}"


def glm_4_7(message: Message) -> str:
    """The thinking, which the prompt has begun, then text and calls without line ends."""
    said = f"{message['reasoning_content']}</think>{message['content']}"
    for name, arguments, _ in _calls(message):
        said += f"<tool_call>{name}"
        for key, value in arguments.items():
            text = value if isinstance(value, str) else json.dumps(value)
            said += f"<arg_key>{key}</arg_key><arg_value>{text}</arg_value>"
        said += "</tool_call>"
    return said


def kimi(message: Message) -> str:
    """Tool calls with their IDs."""
    calls = [
        f"<|tool_call_begin|>{call_id}<|tool_call_argument_begin|>{_odd(arguments)}<|tool_call_end|>"
        for _, arguments, call_id in _calls(message)
    ]
    begin, end = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
    return f"{message['content']}{_section(begin, calls, end)}"


def harmony(message: Message) -> str:
    """The thinking, then a tool call or the text, each on its channel."""
    thinking = ""
    if message["reasoning_content"]:
        thinking = (
            f"<|channel|>analysis<|message|>{message['reasoning_content']}<|end|>"
            "<|start|>assistant"
        )
    for name, arguments, _ in _calls(message):
        return (
            f"{thinking}<|channel|>commentary to=functions.{name} <|constrain|>json"
            f"<|message|>{_odd(arguments)}"
        )
    return f"{thinking}<|channel|>final<|message|>{message['content']}"


def mistral_small(message: Message) -> str:
    """Tool calls with tokens for the ID and the arguments."""
    calls = "".join(
        f"[TOOL_CALLS]{name}[CALL_ID]{call_id}[ARGS]{_odd(arguments)}"
        for name, arguments, call_id in _calls(message)
    )
    return calls or message["content"]


def _calls(message: Message) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Name, arguments and ID of each tool call."""
    for call in message.get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        yield call["function"]["name"], arguments, call["id"]


def _odd(arguments: dict[str, Any]) -> str:
    """JSON with spaces where no template writes any."""
    return json.dumps(arguments, separators=(" , ", ":"), ensure_ascii=False)


def _section(begin: str, calls: list[str], end: str) -> str:
    return begin + "".join(calls) + end if calls else ""
