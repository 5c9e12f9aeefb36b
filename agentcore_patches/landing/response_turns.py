"""Turns of /v1/responses whose prompts begin with the tokens of the turns before.

SGLang makes a chat request of each; `prefix` makes the prompt of that one.
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
    """A prefix is refused: no `ValueError`, of which SGLang makes an answer itself."""


class PrefixField(responses.CheckedField):
    """The token IDs of the earlier turns; elements are checked by hand."""

    name, type = FIELD, list[Any] | None


class ResponseTurn:
    """The turn of a conversation that a response is.

    Attributes:
        request: the one to /v1/responses.
        uses_memory: whether the server may remember its turns.
        turn: the chat request's, None if it neither has a prefix nor is remembered.
        trace: takes in the engine's results, None if nobody needs them.
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
        """Ask chat for what the response asks for, and keep the turn that it makes.

        Raises:
            Refused: the prefix that is asked for cannot be had.
        """
        chat_request.required_prefix_token_ids = self.request.required_prefix_token_ids
        chat_request._uses_memory = self.uses_memory
        # They are part of what a conversation is remembered by.
        chat_request.extra_key = self.request.extra_key
        chat_request.cache_salt = self.request.cache_salt
        try:
            yield
        except PrefixError as error:
            raise Refused(str(error)) from error
        self.turn = prefix.turn_of(chat_request)


def followed(create: Any) -> Any:
    """Decorate `create_responses`: a response continues the turns before it."""

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
    """Why a request cannot have a prefix, None if it asks for none or may have it."""
    if not request.required_prefix_token_ids:
        return None
    unsupported = responses.find_unsupported(serving, request, FIELD)
    if unsupported is None and request.previous_response_id is not None:
        # Some releases leave the tool calls of that response out.
        return (
            f"{FIELD} cannot be used with previous_response_id: send the items of the "
            "earlier turns in input."
        )
    return unsupported


def _with_prefix(metadata: dict[str, Any] | None, turn: Turn) -> dict[str, Any] | None:
    """A response's metadata with what is said of its prefix, if it has one."""
    if turn.metadata is None:
        return metadata
    return {**(metadata or {}), "prefix": turn.metadata}


def _follow(
    serving: OpenAIServingResponses, made: ResponseTurn, turn: Turn
) -> Callable[[str], str]:
    """Make what adds to each response what the prefix was, and remembers the last."""

    def follow(text: str) -> str:
        # A quote inside a JSON string is escaped: this is a key.
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
    """Remember an answer by the messages that SGLang makes of it in the next turn."""
    trace = made.trace
    if turn.conversation is None or trace is None:
        return
    choice = trace.choices.get(0)
    if choice is None:
        return
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

    # From 0.5.23 on some models' tools have other names in what is sent back.
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
