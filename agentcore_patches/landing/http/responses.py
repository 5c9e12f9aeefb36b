"""Token IDs and logprobs of /v1/responses, streaming or not.

A trace records the engine's results where SGLang reads them. It writes their token IDs
and logprobs on the events of a stream, or on the non-streaming response.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from .. import release
from ..shared.decorators import named, wrapping
from . import defaults, exchanges, logprobs, streams, traces

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import ResponsesRequest
    from sglang.srt.entrypoints.openai.serving_responses import OpenAIServingResponses

    from .answers import Json

_FIELD = "return_token_ids"
_FIRST = "response.created"
_COMPLETED = "response.completed"
_LAST = (_COMPLETED, "response.incomplete", "response.failed")

# OpenAI's fields of a response that was cut off.
_INCOMPLETE = {
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
}


class CheckedField:
    """A request field whose wrong type gets a 400.

    Before 0.5.14, SGLang parses the request by hand and would answer 500.
    """

    name: str
    type: Any

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def validate(value: Any, check: Any) -> Any:
            from fastapi.exceptions import RequestValidationError
            from pydantic import ValidationError

            try:
                return check(value)
            except ValidationError as error:
                wrong = error.errors(include_url=False)
                for one in wrong:
                    one["loc"] = ("body", cls.name, *one["loc"])
                raise RequestValidationError(wrong) from error

        schema = handler(cls.type)
        return core_schema.no_info_wrap_validator_function(validate, schema)


class Flag(CheckedField):
    """`return_token_ids` of a /v1/responses request."""

    name, type = _FIELD, bool | None


class PromptFlag(CheckedField):
    """`return_prompt_token_ids` of a /v1/responses request."""

    name, type = "return_prompt_token_ids", bool | None


class LoraPath(CheckedField):
    """`lora_path` of a /v1/responses request."""

    name, type = "lora_path", str | None


def take_back(values: Json) -> Json:
    """Clean up messages of earlier responses that a client sends back in `input`.

    SGLang does not read the content of its own messages if they have IDs or nulls.
    """
    if not isinstance(values, dict) or not isinstance(values.get("input"), list):
        return values
    return {**values, "input": [_without_nulls(item) for item in values["input"]]}


def _without_nulls(item: Json) -> Json:
    """Drop the ID and nulls of an assistant message; keep other items as they are."""
    match item:
        case {"type": "message", "role": "assistant", "content": [*parts]}:
            content = [
                {name: value for name, value in part.items() if value is not None}
                if isinstance(part, dict)
                else part
                for part in parts
            ]
            kept = {
                name: value
                for name, value in item.items()
                if value is not None and name != "id"
            }
            return {**kept, "content": content}
    return item


class ResponseTrace(traces.EventTrace):
    """Pending token IDs and logprobs of a response."""

    def stamp(self, text: str) -> str:
        """Write pending IDs and logprobs on an event, all of them on the last one.

        Raises:
            ValueError: the engine returned fewer logprobs than tokens.
        """
        # Quotes inside JSON strings are escaped, so this matches only a key.
        if not self.is_pending() and '"response":{' not in text:
            return text
        event = streams.parse(text)
        if event is None:
            return text
        data, response = event.data, event.data.get("response")
        if self.is_rejected():
            self.failed = True
        else:
            data.update(self.take())
        if isinstance(response, dict):
            if data.get("type") == _FIRST:
                response.update(self._prompt())
            elif data.get("type") in _LAST:
                response.update(self.whole())
                if ending := self.ending(response):
                    response.update(ending)
                    data["type"] = f"response.{ending['status']}"
                    start = event.start.replace(_COMPLETED, data["type"])
                    event = event._replace(start=start)
                self.failed = self.failed or data["type"] == "response.failed"
        return event.text()

    def whole(self) -> dict[str, Any]:
        """Return the fields of a finished response; call it after the last `take`."""
        fields: dict[str, Any] = {"token_ids": [], "token_logprobs": []}
        # The output of a request that the scheduler rejects may lack logprobs.
        if (choice := self.last) is not None and choice.n_sent:
            fields["token_ids"] = choice.output_ids[: choice.n_sent]
            fields["token_logprobs"] = logprobs.flat(choice.lists)[: choice.n_sent]
        return {**self._prompt(), **fields}

    def ending(self, response: dict[str, Any]) -> dict[str, Any]:
        """Return the fields that correct a response which did not complete.

        Before 0.5.20, SGLang calls a response completed that `max_output_tokens` cut
        off, and a stream whose request was aborted.
        """
        if response.get("status") != "completed":
            return {}
        reason = self.finish_reason
        if reason.get("type") == "length":
            return _INCOMPLETE
        if reason.get("type") == "abort":
            message = reason.get("message") or "The request was aborted."
            error = {"code": "server_error", "message": message}
            return {"status": "failed", "error": error}
        return {}

    def _prompt(self) -> dict[str, Any]:
        """Return the field for the prompt's token IDs, empty if they are unknown."""
        if self.prompt_token_ids is None:
            return {}
        return {"prompt_token_ids": self.prompt_token_ids}


class Results:
    """The engine's results for a response; the trace records each one first."""

    def __init__(self, trace: traces.Trace, results: Any):
        self._trace = trace
        self._results = results
        self._waiting: list[Any] = []

    def __aiter__(self) -> Results:
        return self

    async def __anext__(self) -> Any:
        if not self._waiting:
            return await self._next()
        outcome = self._waiting.pop()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _next(self) -> Any:
        context = await anext(self._results)
        self._trace.push(0, context.last_output)
        return context

    async def wait_for_first(self) -> None:
        """Fetch the first result now, so that an early error reaches the reader."""
        try:
            self._waiting.append(await self._next())
        except Exception as error:
            self._waiting.append(error)

    async def aclose(self) -> None:
        await self._results.aclose()


@wrapping
def results(generate: Any, *args: Any, **kwargs: Any) -> Any:
    """Decorate the generator of engine results: the trace, if any, records them."""
    exchange = exchanges.current.get()
    made = generate(*args, **kwargs)
    if exchange is None or exchange.trace is None:
        return made
    trace = exchange.trace
    adapted = named(generate, args, kwargs)["adapted_request"]
    if trace.has_logprobs:
        adapted.return_logprob = True
    adapted.return_prompt_token_ids = True
    exchange.results = Results(trace, made)
    return exchange.results


@wrapping
async def responses(
    create: Any,
    self: OpenAIServingResponses,
    request: ResponsesRequest,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate `create_responses`: add token IDs and logprobs if requested."""
    is_asked = request.return_token_ids
    defaults.fill(request, self.tokenizer_manager)
    if not request.return_token_ids:
        return await create(self, request, *args, **kwargs)
    unsupported = find_unsupported(self, request, _FIELD)
    if refusal := unsupported or logprobs.refusal(self.tokenizer_manager):
        if is_asked:
            return self.create_error_response(refusal, param=_FIELD)
        return await create(self, request, *args, **kwargs)
    trace = ResponseTrace(
        bool(request.stream) and traces.is_incremental(self),
        has_prompt=traces.wants_prompt(request),
    )
    exchange = exchanges.Exchange(response=request, trace=trace)
    with exchanges.entered(exchange):
        response = await create(self, request, *args, **kwargs)
    if isinstance(response, AsyncGenerator):
        # The first event carries the prompt's IDs, which come with the first result.
        events = with_results(response, exchange.results, wait_for_first=True)
        end = partial(traces.end, trace, "responses")
        return streams.rewrite(events, trace.stamp, error_events, end)
    return _with_trace(self, trace, response)


def find_unsupported(
    serving: OpenAIServingResponses, request: ResponsesRequest, field: str
) -> str | None:
    """Return why a kind of response does not support a field, None if it does."""
    if not release.RESPONSES_ARE_TRACED:
        return (
            f"{field} is not supported on /v1/responses by this release of SGLang: "
            "0.5.14 is the first. Use /v1/chat/completions."
        )
    if serving.use_harmony:
        return (
            f"{field} is not supported on /v1/responses with gpt-oss models. "
            "Use /v1/chat/completions."
        )
    if request.background:
        return (
            f"{field} is not supported on /v1/responses with background=true: "
            "set background=false."
        )
    return None


def _with_trace(
    serving: OpenAIServingResponses, trace: ResponseTrace, response: Any
) -> Any:
    """Add the trace to a non-streaming response; return errors unchanged."""
    from fastapi import Response
    from fastapi.encoders import jsonable_encoder

    if isinstance(response, Response):
        return response
    try:
        trace.take()
    except ValueError as error:
        return serving.create_error_response(str(error))
    traces.count(trace, "responses", "whole")
    content = {**jsonable_encoder(response), **trace.whole()}
    content.update(trace.ending(content))
    return Response(orjson.dumps(content), media_type="application/json")


async def with_results(
    lines: AsyncGenerator[Any, None],
    results: Results | None,
    wait_for_first: bool = False,
) -> AsyncGenerator[str | bytes, None]:
    """Yield the events of a stream, and close the engine's results at its end."""
    try:
        if results is not None and wait_for_first:
            await results.wait_for_first()
        async for line in lines:
            yield line
    finally:
        await lines.aclose()
        if results is not None:
            await results.aclose()


def error_events(message: str) -> list[str]:
    """Make the event that ends a stream of /v1/responses with an error."""
    event = {"type": "error", "code": None, "message": message, "param": None}
    return [f"event: error\ndata: {orjson.dumps(event).decode()}\n\n"]
