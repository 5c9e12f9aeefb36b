"""Turns of /v1/responses whose prompts begin with the tokens of the turns before.

SGLang makes a chat request of each; `prefix` makes the prompt of that one.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from functools import wraps
from typing import TYPE_CHECKING, Any

import orjson

from . import conversations, release, responses, traces
from .prefix import FIELD, Turn

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        ResponsesRequest,
    )
    from sglang.srt.entrypoints.openai.serving_responses import OpenAIServingResponses

_LAST = ("response.completed", "response.incomplete")


def find_refusal(
    serving: OpenAIServingResponses, request: ResponsesRequest
) -> str | None:
    """Why a request cannot have a prefix, None if it asks for none or may have it."""
    # Up to 0.5.13 it may be of any type.
    if request.required_prefix_token_ids in (None, []):
        return None
    unsupported = responses.find_unsupported(serving, request, FIELD)
    if unsupported is None and request.previous_response_id is not None:
        # Some releases leave the tool calls of that response out.
        return (
            f"{FIELD} cannot be used with previous_response_id: send the items of the "
            "earlier turns in input."
        )
    return unsupported


def ask_chat(request: ResponsesRequest, chat_request: ChatCompletionRequest) -> None:
    """Ask chat for what a request to /v1/responses asks for."""
    chat_request.required_prefix_token_ids = request.required_prefix_token_ids
    chat_request._uses_memory = (
        release.RESPONSES_ARE_TRACED
        and request.return_token_ids is not False
        and not request.background
    )
    # They are part of what a conversation is remembered by.
    chat_request.extra_key = request.extra_key
    chat_request.cache_salt = request.cache_salt


def follow_chat(
    request: ResponsesRequest,
    chat_request: ChatCompletionRequest,
    engine_prompts: list[Any],
) -> list[Any]:
    """The prompts for the engine: the turn's own, if it continues the turns before."""
    request._turn = turn = chat_request._turn
    if turn is None or turn.prompt is None:
        return engine_prompts
    return [turn.prompt]


def whole(make: Any) -> Any:
    """Decorate `responses_full_generator`: it says of the prefix, and is remembered."""
    signature = inspect.signature(make)

    @wraps(make)
    async def made(
        self: OpenAIServingResponses,
        request: ResponsesRequest,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        response = await make(self, request, *args, **kwargs)
        turn = request._turn
        if turn is None or not hasattr(response, "output"):
            return response
        if turn.metadata is not None:
            response.metadata = _with_prefix(response.metadata, turn)
        given = signature.bind(self, request, *args, **kwargs).arguments
        trace = traces.Trace(incremental=False)
        trace.push(0, given["context"].last_output)
        _remember(self, request, trace, response.output, given)
        return response

    return made


def streamed(generate: Any) -> Any:
    """Decorate `responses_stream_generator_non_harmony`, as `whole` does."""
    signature = inspect.signature(generate)

    @wraps(generate)
    def stream(
        self: OpenAIServingResponses,
        request: ResponsesRequest,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if request._turn is None:
            return generate(self, request, *args, **kwargs)
        bound = signature.bind(self, request, *args, **kwargs)
        given = bound.arguments
        trace = traces.Trace(traces.is_incremental(self))
        given["result_generator"] = responses.Results(trace, given["result_generator"])
        lines = generate(*bound.args, **bound.kwargs)
        return _followed(self, request, trace, lines, given)

    return stream


def _with_prefix(metadata: dict[str, Any] | None, turn: Turn) -> dict[str, Any]:
    return {**(metadata or {}), "prefix": turn.metadata}


async def _followed(
    serving: OpenAIServingResponses,
    request: ResponsesRequest,
    trace: traces.Trace,
    lines: Any,
    given: dict[str, Any],
) -> AsyncIterator[str]:
    """The events of a response, which say what the prefix was.

    Args:
        given: the arguments of what makes the events.
    """
    turn = request._turn
    try:
        async for line in lines:
            line = traces.text_of(line)
            # A quote inside a JSON string is escaped: this is a key.
            if '"response":{' not in line:
                yield line
                continue
            for one in traces.events_of(line):
                start, data, body = one.partition("data: ")
                event = orjson.loads(body) if data else {}
                response = event.get("response")
                if response is not None and turn.metadata is not None:
                    response["metadata"] = _with_prefix(response["metadata"], turn)
                    one = f"{start}{data}{orjson.dumps(event).decode()}\n\n"
                if event.get("type") in _LAST:
                    output = event["response"]["output"]
                    _remember(serving, request, trace, output, given)
                yield one
    finally:
        await lines.aclose()
        await given["result_generator"].aclose()


def _remember(
    serving: OpenAIServingResponses,
    request: ResponsesRequest,
    trace: traces.Trace,
    output: list[Any],
    given: dict[str, Any],
) -> None:
    """Remember an answer by the messages that SGLang makes of it in the next turn.

    Args:
        given: the arguments of what made the answer.
    """
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

    turn, choice = request._turn, trace.choices.get(0)
    # Some models' tools have names of their own in what is sent back.
    if given.get("tool_adapter") is not None or turn.key is None or choice is None:
        return
    sent_back = request.model_copy(
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
            turn.key = conversations.key_with(turn.key, message, turn.reasoning_parser)
    finish_reason = (choice.meta_info["finish_reason"] or {}).get("type", "")
    turn.remember(answer, finish_reason, trace.prefilled, choice.output_ids)
