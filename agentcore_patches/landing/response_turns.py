"""Turns of /v1/responses whose prompts start with the tokens of earlier turns.

SGLang converts each /v1/responses request to a chat request. `prefix` builds the prompt
of the chat request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from . import conversations, prefix, release, responses, streams, traces
from .prefix import FIELD, PrefixError, Turn

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        ResponsesRequest,
    )
    from sglang.srt.entrypoints.openai.serving_responses import OpenAIServingResponses

_LAST = ("response.completed", "response.incomplete")


class Refused(Exception):
    """A rejected prefix. It is no `ValueError`, because SGLang would catch that."""


class PrefixField(responses.CheckedField):
    """The token IDs of the earlier turns; `prompts` validates the elements."""

    name, type = FIELD, list[Any] | None


class ResponseTurn:
    """A response as a turn of a conversation.

    Attributes:
        request: the /v1/responses request.
        uses_memory: True if the server may remember the conversation.
        turn: turn of the chat request; None without prefix and memory.
        trace: records the engine's results, None if they are not needed.
    """

    def __init__(self, serving: OpenAIServingResponses, request: ResponsesRequest):
        self.request = request
        self.uses_memory = (
            release.RESPONSES_ARE_TRACED
            and request.return_token_ids is not False
            and not request.background
        )
        self.turn: Turn | None = None
        self.trace = responses.current_trace.get()
        remembers = self.uses_memory and conversations.memory() is not None
        if self.trace is None and remembers:
            incremental = bool(request.stream) and traces.is_incremental(serving)
            self.trace = responses.ResponseTrace(incremental, has_logprobs=False)

    @contextmanager
    def asking(self, chat_request: ChatCompletionRequest) -> Iterator[None]:
        """Copy the prefix fields to the chat request, then keep the turn chat creates.

        Raises:
            Refused: the prefix that the request asks for cannot be used.
        """
        chat_request.required_prefix_token_ids = self.request.required_prefix_token_ids
        chat_request._uses_memory = self.uses_memory
        # These two are part of a conversation's identity in the memory.
        chat_request.extra_key = self.request.extra_key
        chat_request.cache_salt = self.request.cache_salt
        try:
            yield
        except PrefixError as error:
            raise Refused(str(error)) from error
        self.turn = prefix.turn_of(chat_request)


def followed(create: Any) -> Any:
    """Decorate `create_responses`: the prompt starts with the earlier turns."""

    @wraps(create)
    async def follow(
        self: OpenAIServingResponses,
        request: ResponsesRequest,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if refusal := _find_refusal(self, request):
            return self.create_error_response(refusal)
        made = ResponseTurn(self, request)
        try:
            with (
                responses.held(prefix.response_turn, made),
                responses.held(responses.current_trace, made.trace),
            ):
                response = await create(self, request, *args, **kwargs)
        except Refused as error:
            return self.create_error_response(str(error))
        if made.turn is None:
            return response
        made.turn.count()
        if isinstance(response, AsyncGenerator):
            results = None if made.trace is None else made.trace.results
            lines = responses.with_results(response, results)
            follow = _follow(self, made, made.turn)
            return streams.rewrite(lines, follow, responses.error_events)
        if hasattr(response, "output"):
            response.metadata = _with_prefix(response.metadata, made.turn)
            _remember(self, made, made.turn, response.output)
        return response

    return follow


def _find_refusal(
    serving: OpenAIServingResponses, request: ResponsesRequest
) -> str | None:
    """Return why a request's prefix is rejected; None if it is accepted or absent."""
    if not request.required_prefix_token_ids:
        return None
    unsupported = responses.find_unsupported(serving, request, FIELD)
    if unsupported is None and request.previous_response_id is not None:
        # Some releases drop the tool calls of the previous response.
        return (
            f"{FIELD} cannot be used with previous_response_id: send the items of the "
            "earlier turns in input."
        )
    return unsupported


def _with_prefix(metadata: dict[str, Any] | None, turn: Turn) -> dict[str, Any] | None:
    """Add the turn's `prefix` to a response's metadata, if it has one."""
    if turn.metadata is None:
        return metadata
    return {**(metadata or {}), "prefix": turn.metadata}


def _follow(
    serving: OpenAIServingResponses, made: ResponseTurn, turn: Turn
) -> Callable[[str], str]:
    """Return a function that adds `metadata.prefix` and remembers the last response."""

    def follow(text: str) -> str:
        # Quotes inside JSON strings are escaped, so this matches only a key.
        if '"response":{' not in text:
            return text
        event = streams.parse(text)
        response = event.data.get("response") if event is not None else None
        if event is None or not isinstance(response, dict):
            return text
        if turn.metadata is not None:
            response["metadata"] = _with_prefix(response.get("metadata"), turn)
            text = event.text()
        if event.data.get("type") in _LAST:
            _remember(serving, made, turn, response["output"])
        return text

    return follow


def _remember(
    serving: OpenAIServingResponses, made: ResponseTurn, turn: Turn, output: list[Any]
) -> None:
    """Remember a response as the messages into which the next turn converts it."""
    trace = made.trace
    if turn.conversation is None or trace is None:
        return
    choice = trace.choices.get(0)
    if choice is None:
        return
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

    # From 0.5.23 on, tools of some models have other names in the next turn's input.
    if getattr(serving, "_translates_tools", False):
        return
    sent_back = made.request.model_copy(
        update={"input": output, "instructions": None, "previous_response_id": None}
    )
    try:
        messages = serving._construct_input_messages(sent_back)
        *earlier, answer = ChatCompletionRequest(messages=messages).messages
    except ValueError:
        # Nothing was said, or what a next turn cannot have in it.
        return
    for message in earlier:
        if not conversations.is_silent(message, turn.reasoning_parser):
            turn.conversation = conversations.with_answer(
                turn.conversation, message, turn.reasoning_parser
            )
    finish_reason = (choice.meta_info["finish_reason"] or {}).get("type", "")
    turn.remember(answer, finish_reason, trace.prefilled, choice.output_ids)
