"""Token IDs and logprobs of /v1/responses, streamed or not.

The engine's results are taken in where SGLang reads them. What they carry is written on
the events that leave, or on the whole response.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any

import orjson

from . import defaults, logprobs, release, streams, traces

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import ResponsesRequest
    from sglang.srt.entrypoints.openai.serving_responses import OpenAIServingResponses

    from .answers import Json

_FIELD = "return_token_ids"
_FIRST = "response.created"
_COMPLETED = "response.completed"
_LAST = (_COMPLETED, "response.incomplete", "response.failed")

# What OpenAI's API says of a response that was cut.
_INCOMPLETE = {
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
}

# What takes in the engine's results for the response that is being made.
current_trace: ContextVar[ResponseTrace | None] = ContextVar(
    "agentcore_response_trace", default=None
)


class CheckedField:
    """A field of a request, of which a wrong type is a 400.

    Before 0.5.14 SGLang makes the request by hand, where it would be a 500.

    Attributes:
        name: the field's.
        type: what it is to be.
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
    """Whether a response is to have its token IDs."""

    name, type = _FIELD, bool | None


def take_back(values: Json) -> Json:
    """A request whose `input` has messages of earlier responses as SGLang sent them.

    Their null members and their IDs keep SGLang from reading their content.
    """
    if not isinstance(values, dict) or not isinstance(values.get("input"), list):
        return values
    return {**values, "input": [_without_nulls(item) for item in values["input"]]}


def _without_nulls(item: Json) -> Json:
    """An input item; a message of the assistant without its ID and without nulls."""
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


class ResponseTrace(traces.Trace):
    """Token IDs and logprobs of a response that no event has carried.

    Attributes:
        results: the engine's, once there are any.
    """

    def __init__(self, incremental: bool, has_logprobs: bool = True):
        super().__init__(incremental)
        self.has_logprobs = has_logprobs
        self.token_ids: list[int] = []
        self.token_logprobs: list[float] = []
        self.results: Results | None = None

    def stamp(self, text: str) -> str:
        """An event with all that waits; the last one's response with all there was.

        Raises:
            ValueError: the engine gave fewer logprobs than tokens.
        """
        choice = self.last
        waits = choice is not None and choice.n_sent != choice.n_received
        # A quote inside a JSON string is escaped: this is a key.
        if not waits and '"response":{' not in text:
            return text
        event = streams.parse(text)
        if event is None:
            return text
        data, response = event.data, event.data.get("response")
        data.update(self.take())
        if isinstance(response, dict):
            if data.get("type") == _FIRST:
                response.update(self._prompt())
            elif data.get("type") in _LAST:
                self.failed = self.failed or data["type"] == "response.failed"
                response.update(self.whole())
                if self.is_cut(response):
                    response.update(_INCOMPLETE)
                    data["type"] = "response.incomplete"
                    start = event.start.replace(_COMPLETED, data["type"])
                    event = event._replace(start=start)
        return event.text()

    def take(self) -> dict[str, Any]:
        """What waits, as members of an event.

        Raises:
            ValueError: the engine gave fewer logprobs than tokens.
        """
        choice = self.last
        if choice is None or choice.n_sent == choice.n_received:
            return {}
        new = {
            "token_ids": choice.output_ids[choice.n_sent : choice.n_received],
            "token_logprobs": [
                entry[0] for entry in traces.cut(choice)["output_token_logprobs"]
            ],
        }
        choice.n_sent = choice.n_received
        self.token_ids += new["token_ids"]
        self.token_logprobs += new["token_logprobs"]
        return new

    def whole(self) -> dict[str, Any]:
        """What a whole response has; all that waited is taken."""
        return {
            **self._prompt(),
            "token_ids": self.token_ids,
            "token_logprobs": self.token_logprobs,
        }

    def is_cut(self, response: dict[str, Any]) -> bool:
        """True for a completed response that `max_output_tokens` cut."""
        if response.get("status") != "completed" or self.last is None:
            return False
        reason = self.last.meta_info.get("finish_reason") or {}
        return reason.get("type") == "length"

    def _prompt(self) -> dict[str, Any]:
        """The prompt's token IDs, none where they are unknown."""
        if self.prompt_token_ids is None:
            return {}
        return {"prompt_token_ids": self.prompt_token_ids}


class Results:
    """The engine's results for a response, each taken in before it is handed on."""

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
        """Take in the first result, or the error that who reads the results gets."""
        try:
            self._waiting.append(await self._next())
        except Exception as error:
            self._waiting.append(error)

    async def aclose(self) -> None:
        await self._results.aclose()


@contextmanager
def held(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Give a context variable a value for the block."""
    reset = variable.set(value)
    try:
        yield
    finally:
        variable.reset(reset)


def results(generate: Any) -> Any:
    """Have the engine's results for a response taken in, if it has a trace."""
    signature = inspect.signature(generate)

    @wraps(generate)
    def traced(*args: Any, **kwargs: Any) -> Any:
        trace = current_trace.get()
        made = generate(*args, **kwargs)
        if trace is None:
            return made
        adapted = signature.bind(*args, **kwargs).arguments["adapted_request"]
        if trace.has_logprobs:
            adapted.return_logprob = True
        adapted.return_prompt_token_ids = True
        trace.results = Results(trace, made)
        return trace.results

    return traced


def responses(create: Any) -> Any:
    """Have a response carry token IDs and logprobs, if asked to."""

    @wraps(create)
    async def traced(
        self: OpenAIServingResponses,
        request: ResponsesRequest,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        is_asked = request.return_token_ids
        defaults.fill(request, self.tokenizer_manager)
        if not request.return_token_ids:
            return await create(self, request, *args, **kwargs)
        unsupported = find_unsupported(self, request, _FIELD)
        if refusal := unsupported or logprobs.refusal(self.tokenizer_manager):
            if is_asked:
                return self.create_error_response(refusal, param=_FIELD)
            return await create(self, request, *args, **kwargs)
        trace = ResponseTrace(bool(request.stream) and traces.is_incremental(self))
        with held(current_trace, trace):
            response = await create(self, request, *args, **kwargs)
        if isinstance(response, AsyncGenerator):
            return _stamped(trace, response)
        return _with_trace(self, trace, response)

    return traced


def find_unsupported(
    serving: OpenAIServingResponses, request: ResponsesRequest, field: str
) -> str | None:
    """Why a kind of response cannot have a field, None if it may."""
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
    """The HTTP response of a whole response with its trace; errors stay as they are."""
    from fastapi import Response
    from fastapi.encoders import jsonable_encoder

    if isinstance(response, Response):
        return response
    try:
        trace.take()
    except ValueError as error:
        return serving.create_error_response(str(error))
    content = {**jsonable_encoder(response), **trace.whole()}
    if trace.is_cut(content):
        content.update(_INCOMPLETE)
    return Response(orjson.dumps(content), media_type="application/json")


def _stamped(
    trace: ResponseTrace, lines: AsyncGenerator[Any, None]
) -> AsyncGenerator[str | bytes, None]:
    """The events of a stream, stamped; an error is its last event."""
    # The first event has the prompt, which the engine's first result brings.
    events = with_results(lines, trace.results, wait_for_first=True)
    return streams.rewrite(events, trace.stamp, error_events, trace.end)


async def with_results(
    lines: AsyncGenerator[Any, None],
    results: Results | None,
    wait_for_first: bool = False,
) -> AsyncGenerator[str | bytes, None]:
    """Yield the events of a stream; close the engine's results with it."""
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
