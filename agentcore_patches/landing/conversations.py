"""The conversations that the server answered, by what a client sends of them."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from . import release
from .remembered import Conversation, Head, Memory

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
_CLAUDE_CODE = "x-anthropic-billing-header:"
_CLAUDE_CODE_LINE = re.compile(f"^{_CLAUDE_CODE}.*$", re.MULTILINE)

# Stands for what a pattern removed.
_REMOVED = "\0"


@cache
def memory() -> Memory | None:
    """What this server remembers, None if it is to remember nothing."""
    megabytes = _megabytes()
    return Memory(megabytes * 1_000_000) if megabytes else None


def check_server(server_args: ServerArgs) -> None:
    """Refuse to start a server with a variable that it cannot follow.

    Args:
        server_args: a `ServerArgs`, whose class does not always declare its fields.

    Raises:
        ValueError: says what to do.
    """
    ignored_patterns()
    if not _megabytes():
        return
    if "prefix" not in release.PATCHES:
        raise ValueError(
            f"{VARIABLE} is set, and the patch prefix is not in place: run "
            "`agentcore-patch apply`, or unset the variable."
        )
    if getattr(server_args, "disaggregation_mode", "null") != "null":
        raise ValueError(
            f"{VARIABLE} is set, and --disaggregation-mode is "
            f"{server_args.disaggregation_mode}: the servers for prefill and for "
            "decoding would remember different conversations. Unset the variable."
        )
    if server_args.tokenizer_worker_num > 1:
        raise ValueError(
            f"{VARIABLE} is set, and --tokenizer-worker-num is "
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
    """Return the patterns of system text that the environment ignores, one a line.

    Raises:
        ValueError: says what to do about a bad one.
    """
    patterns = []
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
                f"{IGNORE} has {text!r}, which matches an empty text, too. Write a "
                "pattern that only matches what changes, or unset the variable."
            )
        patterns.append(pattern)
    return tuple(patterns)


def find(
    serving: OpenAIServingChat, request: ChatCompletionRequest
) -> tuple[Conversation | None, Conversation, int]:
    """Return a request's conversation up to its last answer, whole, and that place.

    Without an assistant message the first is None, and the place -1.

    Two conversations are the same only if all is the same that their prompts are made
    of: model, adapter, tools, template arguments, and each message's role, content and
    tool calls. Parts that clients change do not count: the IDs of tool calls, the
    spelling of their arguments, reasoning, and the volatile text of system messages.
    """
    parser = serving.reasoning_parser
    described: list[tuple[int, list[Any]]] = []
    last = -1
    calls: dict[str | None, int] = {}
    for index, message in enumerate(request.messages):
        following = request.messages[index + 1 : index + 2]
        if (
            message.role == "assistant"
            and [other.role for other in following] == ["assistant"]
            and is_silent(message, parser)
        ):
            # Reasoning alone, which some releases make a message of.
            continue
        one = _describe(message, calls, parser)
        if message.role in SYSTEM_ROLES and message.content and not one[1]:
            # All of its text is volatile.
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
    whole = Conversation(Head.of(_circumstances(serving, request, system)), [])
    known = None
    for index, one in described[n_system:]:
        whole.add(one, index)
        if index == last:
            known = Conversation(whole.head, [*whole.links])
    return known, whole, last


def with_answer(
    conversation: Conversation,
    answer: ChatMessage | Answer,
    reasoning_parser: str | None,
) -> Conversation:
    """Return a conversation with the message that answers it.

    Args:
        answer: has `content` and `tool_calls`.
    """
    return conversation.with_answer(_describe_assistant(answer, reasoning_parser))


def is_silent(
    message: ChatCompletionMessageGenericParam, reasoning_parser: str | None
) -> bool:
    """Whether an assistant message has neither text nor tool calls."""
    _, content, calls = _describe_assistant(message, reasoning_parser)
    return not content and not calls


def _circumstances(
    serving: OpenAIServingChat,
    request: ChatCompletionRequest,
    system: list[list[Any]],
) -> list[Any]:
    """Return the parts of an identity besides the messages, in the order of `Head`."""
    tools: list[Any] = []
    if request.tools and request.tool_choice != "none":
        chosen = None
        if not isinstance(request.tool_choice, str) and request.tool_choice:
            chosen = request.tool_choice.function.name
        tools = [
            tool.model_dump()
            for tool in request.tools
            if chosen is None or tool.function.name == chosen
        ]
    return [
        [request.model, serving._resolve_lora_path(request.model, request.lora_path)],
        [request.extra_key, request.cache_salt],
        system,
        [
            tools,
            request.tool_choice == "required",
            # What /v1/responses writes in place of the tools, from 0.5.23 on.
            getattr(request, "_template_tools", None),
        ],
        [
            request.chat_template_kwargs or {},
            request.reasoning_effort,
            # Some templates and encoders write these into the prompt. A release that
            # lacks one leaves it out.
            request.model_dump(include={"thinking", "response_format"}),
        ],
    ]


def _describe(
    message: ChatCompletionMessageGenericParam | ChatCompletionMessageUserParam,
    calls: dict[str | None, int],
    reasoning_parser: str | None,
) -> list[Any]:
    """What of a message makes the conversation.

    Args:
        calls: the positions of the assistant's last tool calls, by their IDs.
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
    call_id = getattr(message, "tool_call_id", None)
    tools = getattr(message, "tools", None)
    return [
        message.role,
        content or "",
        getattr(message, "name", None),
        # Clients may give calls IDs of their own.
        calls.get(call_id, call_id),
        [tool.model_dump() for tool in tools or ()],
    ]


def _stable_part(part: dict[str, Any]) -> dict[str, Any] | None:
    """Return a part of a system message without volatile text, None if it is all."""
    text = part.get("text")
    if not text:
        return part
    stable = _without_volatile(text)
    return {**part, "text": stable} if stable else None


def _without_volatile(text: str) -> str:
    """Return a system text without Claude Code's header and what the server ignores."""
    n_removed = 0
    if _CLAUDE_CODE in text:
        text, n_removed = _CLAUDE_CODE_LINE.subn(_REMOVED, text)
    for pattern in ignored_patterns():
        text, n = pattern.subn(_REMOVED, text)
        n_removed += n
    if not n_removed:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        rest = line.replace(_REMOVED, "")
        if rest == line or rest.strip():
            lines.append(rest)
            continue
        # Nothing is left of the line. Blank lines set it apart from the text before.
        while lines and not lines[-1].strip():
            lines.pop()
    return "\n".join(lines)


def _describe_assistant(
    message: ChatCompletionMessageGenericParam | ChatMessage | Answer,
    reasoning_parser: str | None,
) -> list[Any]:
    content = message.content or ""
    if isinstance(content, list):
        content = "".join(getattr(part, "text", None) or "" for part in content)
    tags = _reasoning_tags(reasoning_parser)
    if tags is not None:
        # /v1/messages puts reasoning that a client sends back before the text.
        start, end = tags
        if content.startswith(start):
            content = content.partition(end)[2]
        content = content.lstrip()
    return [
        "assistant",
        content,
        [
            [call.function.name, _parsed(call.function.arguments)]
            for call in message.tool_calls or ()
        ],
    ]


@cache
def _reasoning_tags(reasoning_parser: str | None) -> tuple[str, str] | None:
    """What a model writes around its reasoning, None if that is unknown."""
    if reasoning_parser is None:
        return None
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    try:
        detector = ReasoningParser(reasoning_parser, stream_reasoning=False).detector
        return detector.think_start_token, detector.think_end_token
    except (AttributeError, TypeError, ValueError):
        # Some parsers know no tags, or need more than their name.
        return None


def _parsed(arguments: Any) -> Any:
    """Arguments whatever their spelling; JavaScript writes 1.0 as 1, and none as {}."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    try:
        return json.loads(text or "{}", parse_float=_number)
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number
