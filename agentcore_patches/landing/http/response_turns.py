"""Turns of /v1/responses whose prompts start with the tokens of earlier turns.

SGLang converts each /v1/responses request to a chat request. `prefix` builds the prompt
of the chat request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from .. import release
from ..shared.decorators import wrapping
from . import conversations, exchanges, responses, streams, traces
from .prefix import FIELD, Refused, Turn, client_of, count_refused

if TYPE_CHECKING:
    from fastapi import Request
    from sglang.srt.entrypoints.openai.protocol import ResponsesRequest
    from sglang.srt.entrypoints.openai.serving_responses import OpenAIServingResponses

    from .exchanges import Exchange

_LAST = ("response.completed", "response.incomplete")


class PrefixField(responses.CheckedField):
    """The token IDs of the earlier turns; `prompts` validates the elements."""

    name, type = FIELD, list[Any] | None


@wrapping
async def followed(
    create: Any,
    self: OpenAIServingResponses,
    request: ResponsesRequest,
    raw_request: Request | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate `create_responses`: the prompt starts with the earlier turns."""
    if refusal := _find_refusal(self, request):
        count_refused("request")
        return self.create_error_response(refusal)
    exchange = _start(self, request)
    exchange.client = client_of(raw_request)
    try:
        with exchanges.entered(exchange):
            response = await create(self, request, raw_request, *args, **kwargs)
    except Refused as error:
        return self.create_error_response(str(error))
    turn = exchange.turn
    if turn is None:
        return response
    turn.count()

    def add_prefix(text: str) -> str:
        # Quotes inside JSON strings are escaped, so this matches only a key.
        if '"response":{' not in text:
            return text
        event = streams.parse(text)
        said = event.data.get("response") if event is not None else None
        if event is None or not isinstance(said, dict):
            return text
        if turn.metadata is not None:
            said["metadata"] = _with_prefix(said.get("metadata"), turn)
            text = event.text()
        if event.data.get("type") in _LAST:
            _remember(self, request, exchange, said["output"])
        return text

    if isinstance(response, AsyncGenerator):
        lines = responses.with_results(response, exchange.results)
        return streams.rewrite(lines, add_prefix, responses.error_events)
    if hasattr(response, "output"):
        response.metadata = _with_prefix(response.metadata, turn)
        _remember(self, request, exchange, response.output)
    return response


def _start(serving: OpenAIServingResponses, request: ResponsesRequest) -> Exchange:
    """Return the exchange of a response, with a trace if its answer is remembered."""
    exchange = exchanges.current.get() or exchanges.Exchange(response=request)
    exchange.uses_memory = (
        release.RESPONSES_ARE_TRACED
        and request.return_token_ids is not False
        and not request.background
    )
    remembers = exchange.uses_memory and conversations.memory() is not None
    if exchange.trace is None and remembers:
        incremental = bool(request.stream) and traces.is_incremental(serving)
        exchange.trace = responses.ResponseTrace(incremental, has_logprobs=False)
    return exchange


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


def _remember(
    serving: OpenAIServingResponses,
    request: ResponsesRequest,
    exchange: Exchange,
    output: list[Any],
) -> None:
    """Remember a response as the messages into which the next turn converts it."""
    turn, trace = exchange.turn, exchange.trace
    choice = None if trace is None else trace.choices.get(0)
    if turn is None or turn.conversation is None or trace is None or choice is None:
        return
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

    # From 0.5.23 on, tools of some models have other names in the next turn's input.
    if getattr(serving, "_translates_tools", False):
        return
    sent_back = request.model_copy(
        update={"input": output, "instructions": None, "previous_response_id": None}
    )
    try:
        messages = serving._construct_input_messages(sent_back)
        request_sent_back = ChatCompletionRequest(messages=messages)
        *earlier, answer = [m for m in request_sent_back.messages if m.role != "user"]
    except ValueError:
        # The response is empty, or has items that a next turn cannot contain.
        return
    for message in earlier:
        if not conversations.is_silent(message, turn.reasoning_parser):
            turn.conversation = conversations.with_answer(
                turn.conversation, message, turn.reasoning_parser
            )
    finished = choice.meta_info["finish_reason"] or {}
    turn.remember(
        answer,
        finished.get("type", ""),
        finished.get("matched"),
        trace.prefilled,
        choice.output_ids,
    )
