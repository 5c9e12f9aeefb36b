"""Non-streaming responses written by orjson, and prompts of token IDs validated once.

Stock SGLang builds a pydantic model for each token's logprob, then runs `model_dump`,
FastAPI's encoder over every value, and `json.dumps`. For 16,000 tokens this blocks the
event loop for half a second and stalls every stream. Here orjson writes the same bytes.
A value that orjson would write differently takes SGLang's own path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from .. import release
from . import exchanges, logprobs, metrics

if TYPE_CHECKING:
    from fastapi import Request
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        ChatCompletionResponse,
        CompletionResponse,
    )
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

Json: TypeAlias = Any
"""JSON data, or any other object found in its place."""


# The field that orjson writes directly: pydantic and FastAPI would visit each number.
_FLAT = {"choices": {"__all__": {"token_logprobs"}}}


class RequestTokenIds:
    """`input_ids` of a request, an `Optional[Union[List[List[int]], List[int]]]`.

    A flat list of IDs skips pydantic, which tries lists of lists first and builds an
    error for each ID: 20 ms for 32,000 IDs. pydantic validates everything else.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def validate(value: Any, check: Any) -> Any:
            if type(value) is list and set(map(type, value)) == {int}:
                return value
            return check(value)

        vanilla = handler(list[list[int]] | list[int] | None)
        return core_schema.no_info_wrap_validator_function(validate, vanilla)


async def answer(request: Any, making: Awaitable[Any]) -> Any:
    """Return the HTTP response, or a pydantic model that FastAPI will write."""
    unwritten: list[tuple[OpenAIServingChat, dict[str, Any]]] = []
    exchanges.of(request).unwritten = unwritten
    response = await making
    if not hasattr(response, "choices"):
        return response
    if metrics.is_on():
        _count(response)
    if unwritten:
        written = _write(response, unwritten)
        if written is not None:
            return written
        for choice, (serving, ret_item) in zip(
            response.choices, unwritten, strict=True
        ):
            choice.logprobs = serving._process_response_logprobs(ret_item)
    return response if release.PYDANTIC_ANSWERS else _write(response, []) or response


def _count(response: ChatCompletionResponse | CompletionResponse) -> None:
    """Count a response of chat or completions with token IDs, even an empty list."""
    if any(one.token_ids is not None for one in response.choices):
        is_chat = response.object == "chat.completion"
        endpoint = "chat" if is_chat else "completions"
        metrics.count(metrics.TRACED_ANSWERS, endpoint, "whole")


def build_logprobs(
    serving: OpenAIServingChat,
    request: ChatCompletionRequest,
    ret_item: dict[str, Any],
) -> Any:
    """Build the logprobs model of a choice, without a model for each token.

    If `answer` will write the logprobs itself, the model holds only the first token's.
    """
    unwritten = exchanges.of(request).unwritten
    if unwritten is not None:
        unwritten.append((serving, ret_item))
        meta_info = logprobs.cut_to_first(ret_item["meta_info"], 1)
        ret_item = {**ret_item, "meta_info": meta_info}
    return serving._process_response_logprobs(ret_item)


def _write(
    response: ChatCompletionResponse | CompletionResponse,
    unwritten: list[tuple[OpenAIServingChat, dict[str, Any]]],
) -> Any:
    """Write the response that FastAPI would write; None if orjson cannot.

    Args:
        unwritten: source of each choice's logprobs, if `response` has only the first's.
    """
    from fastapi import Response

    try:
        dumped = response.model_dump(mode="json", by_alias=True, exclude=_FLAT)
        content = prepare_for_orjson(dumped)
        made: Any
        for choice, made in zip(content["choices"], response.choices, strict=True):
            if made.token_logprobs is not None:
                choice["token_logprobs"] = made.token_logprobs
        choices = content["choices"] if unwritten else []
        for choice, (serving, ret_item) in zip(choices, unwritten, strict=True):
            whole = ret_item["meta_info"]
            openings = logprobs.openings_of(serving.tokenizer_manager.tokenizer)
            first = logprobs.cut_to_first(whole, 1)
            written = logprobs.write(first, openings, dump_numbers)
            if orjson.dumps(choice["logprobs"]) != written.encode():
                return None
            text = logprobs.write(whole, openings, dump_numbers)
            choice["logprobs"] = orjson.Fragment(text)
        return Response(orjson.dumps(content), media_type="application/json")
    except logprobs.UNUSUAL:
        return None


def dump_numbers(values: list[float]) -> list[str]:
    """Write each number as this SGLang release does in a non-streaming response.

    FastAPI calls `json.dumps`, which writes 1e-07. pydantic writes 1e-7, and null for
    NaN.

    Raises:
        ValueError: a value is not a float, or FastAPI would reject it as not finite.
    """
    texts = logprobs.dump_numbers(values)
    if release.PYDANTIC_ANSWERS:
        return texts
    if not abs(sum(values)) < float("inf"):
        raise ValueError("a number is not finite")
    return [
        text if 1e-4 <= abs(value) < 1e15 else repr(value)
        for text, value in zip(texts, values, strict=False)
    ]


def prepare_for_orjson(value: Json) -> Json:
    """Convert `value` so that orjson writes the same bytes as FastAPI.

    Raises:
        TypeError: FastAPI would convert the value or drop a key.
        ValueError: a number is not finite, which is an error in FastAPI.
    """
    kind = type(value)
    if kind is float:
        return orjson.Fragment(dump_numbers([value])[0])
    if kind is dict:
        if any(type(key) is not str or key.startswith("_sa") for key in value):
            raise TypeError("FastAPI does not keep these keys as they are")
        return {key: prepare_for_orjson(item) for key, item in value.items()}
    if kind is list:
        kinds = set(map(type, value))
        if kinds <= {int, str}:
            return value
        if kinds == {float}:
            return orjson.Fragment(f"[{','.join(dump_numbers(value))}]")
        return [prepare_for_orjson(item) for item in value]
    if kind in (str, int, bool, type(None)):
        return value
    raise TypeError(f"{kind.__name__} is not JSON")


def generated(content: Any, request: Request, endpoint: Callable[..., Any]) -> Any:
    """Write the engine's output as an HTTP response, or leave it to FastAPI.

    Args:
        endpoint: the handler of `/generate`; other endpoints call it for its output.
    """
    if request.scope.get("endpoint") is endpoint:
        body = write_generated(content)
        if body is not None:
            from fastapi import Response

            return Response(body, media_type="application/json")
    return content


def write_generated(content: Any) -> bytes | None:
    """Write the engine's output as JSON; None if FastAPI would write other bytes."""
    try:
        data = orjson.dumps(
            content,
            option=orjson.OPT_PASSTHROUGH_DATACLASS
            | orjson.OPT_PASSTHROUGH_DATETIME
            | orjson.OPT_PASSTHROUGH_SUBCLASS,
        )
    except TypeError:
        return None
    return data if is_plain(content) else None


def is_plain(value: Json) -> bool:
    """True if FastAPI writes the value as orjson does: no NaN and no `_sa` keys.

    orjson writes NaN as null. FastAPI rejects NaN and drops SQLAlchemy's `_sa` keys.
    """
    kind = type(value)
    if kind is dict:
        return all(not key.startswith("_sa") for key in value) and all(
            map(is_plain, value.values())
        )
    if kind not in (list, tuple):
        value = (value,)
    kinds = set(map(type, value))
    if kinds and kinds <= {list, tuple}:
        # Logprobs are rows of equal length: check them by column.
        if len(set(map(len, value))) == 1:
            width = range(len(value[0]))
            return all(is_plain(list(map(itemgetter(i), value))) for i in width)
        return is_plain([item for row in value for item in row])
    if kinds & {dict, list, tuple}:
        return all(map(is_plain, value))
    if float in kinds:
        numbers = value
        if len(kinds) > 1:
            numbers = [item for item in value if type(item) is float]
        if not abs(sum(numbers)) < float("inf"):
            return False
    return kinds <= {float, int, str, bool, type(None)}
