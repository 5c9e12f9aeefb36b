"""Identify a conversation the server has answered from the messages a client sends."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from . import request_fields
from .remembered import START, Conversation, Memory, digest

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionMessageGenericParam,
        ChatCompletionMessageUserParam,
        ChatCompletionRequest,
        ChatMessage,
    )
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
    from sglang.srt.server_args import ServerArgs

    from .prefix import Answer

VARIABLE = "AGENTCORE_PREFIX_CACHE_MB"

IGNORE = "AGENTCORE_PREFIX_IGNORE"

SYSTEM_ROLES = frozenset(("root", "system", "developer"))

# The first line of Claude Code's system prompt, which changes with every request.
_CLAUDE_CODE = re.compile("^x-anthropic-billing-header:.*$", re.MULTILINE)

# Marks the places where a pattern removed text.
_REMOVED = "\0"


@cache
def memory() -> Memory | None:
    """Return this server's conversation memory, or None if it is disabled."""
    megabytes = _megabytes()
    return Memory(megabytes * 1_000_000) if megabytes else None


def check_server(server_args: ServerArgs) -> None:
    """Refuse to start the server with a memory setting that it does not support."""
    ignored_patterns()
    if not _megabytes():
        return
    if server_args.disaggregation_mode != "null":
        raise ValueError(
            f"{VARIABLE} is not supported with --disaggregation-mode "
            f"{server_args.disaggregation_mode}: the servers for prefill and for "
            "decoding would remember different conversations. Unset the variable."
        )
    if server_args.tokenizer_worker_num > 1:
        raise ValueError(
            f"{VARIABLE} is not supported with --tokenizer-worker-num "
            f"{server_args.tokenizer_worker_num}: each tokenizer worker would remember "
            "only the conversations that it answered itself. Unset the variable, or "
            "start one tokenizer worker."
        )


def _megabytes() -> int:
    value = os.environ.get(VARIABLE, "").strip()
    if not value:
        return 0
    if not value.isdecimal() or not value.isascii():
        raise ValueError(
            f"{VARIABLE} is {value!r}: it must be a whole number of megabytes, such as "
            "512. Unset it, or set it to 0, to remember nothing."
        )
    return int(value)


@cache
def ignored_patterns() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of volatile system text: our own, and the variable's lines.

    Raises:
        ValueError: a line is no regular expression.
    """
    patterns = [_CLAUDE_CODE]
    for line in os.environ.get(IGNORE, "").splitlines():
        text = line.strip()
        if not text:
            continue
        try:
            pattern = re.compile(text, re.MULTILINE)
        except re.error as error:
            raise ValueError(
                f"{IGNORE} has {text!r}, which is not a regular expression: {error}. "
                "Write one regular expression on each line, or unset the variable."
            ) from None
        if pattern.fullmatch(""):
            raise ValueError(
                f"{IGNORE} has {text!r}, which also matches an empty text. Write a "
                "pattern that matches only the changing text, or unset the variable."
            )
        patterns.append(pattern)
    return tuple(patterns)


def find(
    serving: OpenAIServingChat, request: ChatCompletionRequest, client: str
) -> tuple[Conversation | None, Conversation, int]:
    """Return the conversation up to its last answer, the whole one, and that index.

    Without an assistant message, the first is None and the index is -1.

    Two conversations are the same only if they are of the same client, and everything
    that goes into the prompt is the same: model, adapter, tools, template arguments,
    and each message's role, content and tool calls. Parts that clients rewrite do not
    count: tool call IDs, the spelling of arguments, reasoning, and volatile text of
    system messages.
    """
    parser = serving.reasoning_parser
    described: list[tuple[int, list[Any]]] = []
    sent = [START]
    last = -1
    calls: dict[str | None, int] = {}
    for index, message in enumerate(request.messages):
        if message.role == "assistant":
            sent.append(digest(message.model_dump(), sent[-1]))
        following = request.messages[index + 1 : index + 2]
        if (
            message.role == "assistant"
            and [other.role for other in following] == ["assistant"]
            and is_silent(message, parser)
        ):
            # Some releases turn reasoning into a separate message.
            continue
        one = _describe(message, calls, parser)
        if message.role in SYSTEM_ROLES and message.content and not one[1]:
            # All text of this message is volatile.
            continue
        described.append((index, one))
        if message.role == "assistant":
            last = index
            calls = {
                call.id: position
                for position, call in enumerate(message.tool_calls or ())
            }
    n_system = 0
    while n_system < len(described) and described[n_system][1][0] in SYSTEM_ROLES:
        n_system += 1
    system = [one for _, one in described[:n_system]]
    whole = Conversation.of(client, _circumstances(request, system))
    whole = whole._replace(sent=sent, written=sent[-1])
    known = None
    for index, one in described[n_system:]:
        whole.add(f"message {index}", one)
        if index == last:
            known = whole._replace(messages=[*whole.messages])
    return known, whole, last


def with_answer(
    conversation: Conversation,
    answer: ChatCompletionMessageGenericParam | ChatMessage | Answer,
    reasoning_parser: str | None,
) -> Conversation:
    """Return a conversation with the assistant's answer appended."""
    return conversation.with_answer(_describe_assistant(answer, reasoning_parser))


def is_silent(
    message: ChatCompletionMessageGenericParam, reasoning_parser: str | None
) -> bool:
    """True if an assistant message has neither text nor tool calls."""
    _, content, calls = _describe_assistant(message, reasoning_parser)
    return not content and not calls


def _circumstances(
    request: ChatCompletionRequest, system: list[list[Any]]
) -> list[Any]:
    """Return the values of `HEAD_PARTS`."""
    tools: list[Any] = []
    if request.tools and request.tool_choice != "none":
        chosen = None
        if not isinstance(request.tool_choice, str) and request.tool_choice:
            chosen = request.tool_choice.function.name
        for tool in request.tools:
            if chosen is None or tool.function.name == chosen:
                tools.append(tool.model_dump())
    return [
        [request.model, request.lora_path],
        [request.extra_key, request.cache_salt],
        system,
        [
            tools,
            request.tool_choice == "required",
            # From 0.5.23 on, /v1/responses renders these instead of the tools.
            request_fields.read(request, "_template_tools"),
        ],
        [
            request.chat_template_kwargs or {},
            request.reasoning_effort,
            # Some templates and encoders write these into the prompt. `include` skips
            # a field that the release does not have.
            request.model_dump(include={"thinking", "response_format", "task"}),
        ],
    ]


def _describe(
    message: ChatCompletionMessageGenericParam | ChatCompletionMessageUserParam,
    calls: dict[str | None, int],
    reasoning_parser: str | None,
) -> list[Any]:
    """Return the parts of a message that identify the conversation.

    Args:
        calls: position of each of the assistant's last tool calls, by call ID.
    """
    if message.role == "assistant":
        return _describe_assistant(message, reasoning_parser)
    content = message.content
    if isinstance(content, str) and message.role in SYSTEM_ROLES:
        content = _without_volatile(content)
    if isinstance(content, list):
        parts = [part.model_dump() for part in content]
        if message.role in SYSTEM_ROLES:
            parts = [*map(_stable_part, parts)]
            parts = [part for part in parts if part is not None]
        is_text = len(parts) == 1 and parts[0]["type"] == "text"
        content = parts[0]["text"] if is_text else parts
    # `include` skips fields that messages of this role do not have.
    other = message.model_dump(include={"name", "tool_call_id", "tools"})
    call_id = other.get("tool_call_id")
    return [
        message.role,
        content or "",
        other.get("name"),
        # Clients may replace tool call IDs with their own.
        calls.get(call_id, call_id),
        other.get("tools") or [],
    ]


def _stable_part(part: dict[str, Any]) -> dict[str, Any] | None:
    """Return a system message part without volatile text; None if nothing is left."""
    text = part.get("text")
    if not text:
        return part
    stable = _without_volatile(text)
    return {**part, "text": stable} if stable else None


def _without_volatile(text: str) -> str:
    """Remove the parts of a system message that match `ignored_patterns`."""
    stable = text
    for pattern in ignored_patterns():
        stable = pattern.sub(_REMOVED, stable)
    if stable == text:
        return text
    lines: list[str] = []
    for line in stable.split("\n"):
        rest = line.replace(_REMOVED, "")
        if rest == line or rest.strip():
            lines.append(rest)
            continue
        # The line is empty now: drop it with the blank lines before it.
        while lines and not lines[-1].strip():
            lines.pop()
    return "\n".join(lines)


def _describe_assistant(
    message: ChatCompletionMessageGenericParam | ChatMessage | Answer,
    reasoning_parser: str | None,
) -> list[Any]:
    content = message.content or ""
    if isinstance(content, list):
        # SGLang's other kinds of parts have no text.
        content = "".join(part.model_dump().get("text") or "" for part in content)
    tags = _reasoning_tags(reasoning_parser)
    if tags is not None:
        # /v1/messages prepends the reasoning that a client sends back to the text.
        start, end = tags
        if content.startswith(start):
            content = content.partition(end)[2]
        content = content.lstrip()
    calls = []
    for call in message.tool_calls or ():
        calls.append([call.function.name, _parsed(call.function.arguments)])
    return ["assistant", content, calls]


@cache
def _reasoning_tags(reasoning_parser: str | None) -> tuple[str, str] | None:
    """Return the tags around a model's reasoning, None if they are unknown."""
    if reasoning_parser is None:
        return None
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    try:
        detector = ReasoningParser(reasoning_parser, stream_reasoning=False).detector
        return detector.think_start_token, detector.think_end_token
    except (AttributeError, TypeError, ValueError):
        # Some parsers have no tags, or need more arguments than their name.
        return None


def _parsed(arguments: Any) -> Any:
    """Parse arguments, so that spelling does not count: 1.0 equals 1, "" equals {}."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    try:
        return json.loads(text or "{}", parse_float=_number)
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number
