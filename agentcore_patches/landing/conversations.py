"""The conversations that the server answered, by what a client sends of them."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from array import array
from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING, Any

from . import release

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

VARIABLE = "AGENTCORE_PREFIX_CACHE_MB"

# What an entry takes besides its token IDs: key, array, and their places.
_ENTRY_BYTES = 320


class Memory:
    """Token IDs by conversation; the least recently used leave when it is full."""

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.n_bytes = 0
        self._entries: OrderedDict[bytes, array[int]] = OrderedDict()
        # From 0.5.22 on requests are converted in threads.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> list[int] | None:
        """The token IDs of a conversation, None if it is not remembered.

        It is not, either, where two answers to the same messages said the same by other
        tokens: nobody knows which of them a client goes on with.
        """
        with self._lock:
            token_ids = self._entries.get(key)
            if token_ids is None:
                return None
            self._entries.move_to_end(key)
        return token_ids.tolist() or None

    def put(self, key: bytes, token_ids: list[int]) -> None:
        """Remember a conversation."""
        kept = array("i", token_ids)
        if _size(kept) > self.max_bytes:
            return
        with self._lock:
            known = self._forget(key)
            if known is not None and known != kept:
                kept = array("i")
            self._entries[key] = kept
            self.n_bytes += _size(kept)
            while self.n_bytes > self.max_bytes:
                self._forget(next(iter(self._entries)))

    def _forget(self, key: bytes) -> array[int] | None:
        token_ids = self._entries.pop(key, None)
        if token_ids is not None:
            self.n_bytes -= _size(token_ids)
        return token_ids


def _size(token_ids: array[int]) -> int:
    return len(token_ids) * token_ids.itemsize + _ENTRY_BYTES


@cache
def memory() -> Memory | None:
    """What this server remembers, None if it is to remember nothing."""
    megabytes = _megabytes()
    return Memory(megabytes * 1_000_000) if megabytes else None


def check_server(server_args: Any) -> None:
    """Refuse to start a server with a variable that it cannot follow.

    Args:
        server_args: a `ServerArgs`, whose class does not always declare its fields.

    Raises:
        ValueError: says what to do.
    """
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


def find_keys(
    serving: OpenAIServingChat, request: ChatCompletionRequest
) -> tuple[bytes | None, bytes, int]:
    """The keys of a conversation, and where its last assistant message is.

    The first key is of the messages up to that one, None if there is none.

    Two conversations have the same key only if all is the same that their prompts are
    made of: model, adapter, tools, template arguments, and each message's role,
    content and tool calls. What says nothing of the conversation does not count: the
    IDs of tool calls, the spelling of their arguments, and reasoning, which some
    clients send back and others do not.
    """
    key = _hash(b"", _circumstances(serving, request))
    known: bytes | None = None
    last = -1
    calls: dict[str | None, int] = {}
    for index, message in enumerate(request.messages):
        following = request.messages[index + 1 : index + 2]
        if (
            message.role == "assistant"
            and [other.role for other in following] == ["assistant"]
            and is_silent(message, serving.reasoning_parser)
        ):
            # Reasoning alone, which some releases make a message of.
            continue
        key = _hash(key, _describe(message, calls, serving.reasoning_parser))
        if message.role == "assistant":
            known, last = key, index
            calls = {
                call.id: position
                for position, call in enumerate(message.tool_calls or ())
            }
    return known, key, last


def key_with(key: bytes, answer: Any, reasoning_parser: str | None) -> bytes:
    """The key of a conversation with the message that answers it.

    Args:
        answer: has `content` and `tool_calls`.
    """
    return _hash(key, _describe_assistant(answer, reasoning_parser))


def is_silent(message: Any, reasoning_parser: str | None) -> bool:
    """Whether an assistant message has neither text nor tool calls."""
    _, content, calls = _describe_assistant(message, reasoning_parser)
    return not content and not calls


def _circumstances(serving: OpenAIServingChat, request: ChatCompletionRequest) -> Any:
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
        request.model,
        serving._resolve_lora_path(request.model, request.lora_path),
        tools,
        request.chat_template_kwargs or {},
        request.reasoning_effort,
        request.extra_key,
        request.cache_salt,
        # Some templates and encoders write these into the prompt. A release that lacks
        # one leaves it out.
        request.model_dump(include={"thinking", "response_format"}),
        request.tool_choice == "required",
        # What /v1/responses writes in place of the tools, from 0.5.23 on.
        getattr(request, "_template_tools", None),
    ]


def _describe(
    message: Any, calls: dict[str | None, int], reasoning_parser: str | None
) -> Any:
    """What of a message makes the conversation.

    Args:
        calls: the positions of the assistant's last tool calls, by their IDs.
    """
    if message.role == "assistant":
        return _describe_assistant(message, reasoning_parser)
    content = message.content
    if isinstance(content, list):
        parts = [part.model_dump() for part in content]
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


def _describe_assistant(message: Any, reasoning_parser: str | None) -> Any:
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


def _hash(key: bytes, described: Any) -> bytes:
    text = json.dumps(described, sort_keys=True, default=str)
    return hashlib.sha256(key + text.encode("utf-8", "surrogatepass")).digest()
