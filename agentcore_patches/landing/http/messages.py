"""Token IDs, logprobs and errors of /v1/messages, which SGLang translates from chat."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from ..shared.decorators import named, wrapping
from . import exchanges, metrics, streams, traces

if TYPE_CHECKING:
    from fastapi import Response
    from sglang.srt.entrypoints.anthropic.protocol import (
        AnthropicMessagesRequest,
        AnthropicMessagesResponse,
    )
    from sglang.srt.entrypoints.anthropic.serving import AnthropicServing
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionResponse,
        ChatCompletionResponseChoice,
    )

_ERROR_TYPES: dict[int | None, str] = {
    HTTPStatus.BAD_REQUEST: "invalid_request_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
}
_OTHER_ERRORS = "api_error"


class MessageTrace(traces.EventTrace):
    """Pending token IDs and logprobs of a chat stream that becomes a message.

    SGLang turns one chunk of the chat stream into several events of the message, or
    into none.
    """

    def stamp(self, text: str) -> str:
        """Write pending fields on an event; `message_start` gets the prompt's IDs.

        Raises:
            ValueError: the engine returned fewer logprobs than tokens.
        """
        if self.is_rejected() or '"type":"error"' in text:
            self.failed = True
            return text
        has_prompt = self.prompt_token_ids is not None
        # Quotes inside JSON strings are escaped, so this matches only a type.
        if not (self.is_pending() or has_prompt or '"message_delta"' in text):
            return text
        event = streams.parse(text)
        if event is None:
            return text
        data = event.data
        if has_prompt and "message" in data:
            data["message"]["prompt_token_ids"] = self.prompt_token_ids
            self.prompt_token_ids = None
        if data.get("type") == "message_delta":
            self._correct_stop_reason(data["delta"])
        data.update(self.take())
        return event.text()

    def _correct_stop_reason(self, delta: dict[str, Any]) -> None:
        """Report a stop sequence that matched, which SGLang does not."""
        matched = self.finish_reason.get("matched")
        if delta.get("stop_reason") == "end_turn" and isinstance(matched, str):
            delta["stop_reason"] = "stop_sequence"
            delta["stop_sequence"] = matched


def ask(chat: dict[str, Any], request: AnthropicMessagesRequest) -> None:
    """Set the fields of the chat request that is made for a message."""
    wants_ids = bool(request.return_token_ids)
    chat["return_token_ids"] = chat["return_token_logprobs"] = wants_ids
    if request.return_prompt_token_ids is False:
        chat["return_prompt_token_ids"] = False
    chat["lora_path"] = request.lora_path


@wrapping
def events(generate: Any, self: AnthropicServing, *args: Any, **kwargs: Any) -> Any:
    """Decorate the message stream: add token IDs and logprobs if requested."""
    given = named(generate, (self, *args), kwargs)
    lines = generate(self, *args, **kwargs)
    chat_request = given["processed_request"]
    if not given["anthropic_request"].return_token_ids:
        return lines
    trace = MessageTrace(
        traces.is_incremental(self.openai_serving_chat),
        has_prompt=traces.wants_prompt(chat_request),
    )
    exchanges.of(chat_request).trace = trace
    end = partial(traces.end, trace, "messages")
    return streams.rewrite(lines, trace.stamp, error_events, end)


def error_events(message: str, error_type: str = _OTHER_ERRORS) -> list[str]:
    """Make the event that ends a stream of /v1/messages with an error."""
    error = {"type": "error", "error": {"type": error_type, "message": message}}
    return [f"event: error\ndata: {orjson.dumps(error).decode()}\n\n"]


async def until_error(lines: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """End a chat stream at its first error, with the error event of /v1/messages.

    Chat raises a `ValueError` before its first chunk, and writes later errors as lines.
    """
    try:
        async for line in lines:
            is_error = line.startswith('data: {"error"')
            event = streams.parse(line) if is_error else None
            if event is not None:
                yield _error_event(event.data["error"])
                return
            yield line
    except ValueError as error:
        yield _error_event({"code": HTTPStatus.BAD_REQUEST, "message": str(error)})
    finally:
        await lines.aclose()


def _error_event(error: dict[str, Any]) -> str:
    """Convert an error of chat to an event of /v1/messages."""
    error_type = _ERROR_TYPES.get(error.get("code"), _OTHER_ERRORS)
    [event] = error_events(error["message"], error_type)
    return event


def find_model_error(
    serving: AnthropicServing, request: AnthropicMessagesRequest
) -> Any:
    """Return the response to a request for an unknown model; None if it is known."""
    from fastapi import HTTPException

    try:
        serving.openai_serving_chat._resolve_lora_path(request.model, request.lora_path)
    except HTTPException as error:
        return _error_response(serving, error.status_code, error.detail)
    return None


def refuse(serving: AnthropicServing, error: ValueError) -> Any:
    """Answer 400 to a request that cannot be converted; the error gives the reason."""
    return _error_response(serving, HTTPStatus.BAD_REQUEST, str(error))


def pass_on(serving: AnthropicServing, response: Response) -> Any:
    """Answer with the status and the message of an error response of chat."""
    message = orjson.loads(response.body)["message"]
    return _error_response(serving, response.status_code, message)


def _error_response(serving: AnthropicServing, status: int, message: str) -> Any:
    return serving._error_response(
        status_code=status,
        error_type=_ERROR_TYPES.get(status, _OTHER_ERRORS),
        message=message,
    )


def add_to_message(
    message: AnthropicMessagesResponse, response: ChatCompletionResponse
) -> None:
    """Copy token IDs and logprobs from the chat response to the message made from it.

    Also correct `stop_reason`: SGLang does not report a matched stop sequence.
    """
    choice: ChatCompletionResponseChoice = response.choices[0]
    message.prompt_token_ids = response.prompt_token_ids
    message.token_ids = choice.token_ids
    message.token_logprobs = choice.token_logprobs
    if message.stop_reason == "end_turn" and isinstance(choice.matched_stop, str):
        message.stop_reason = "stop_sequence"
        message.stop_sequence = choice.matched_stop
    metrics.count(metrics.TRACED_ANSWERS, "messages", "whole")
