"""Whole answers written by orjson, and prompts of token IDs that are not walked twice.

SGLang makes a model of each token's logprob, then takes `model_dump`, FastAPI's encoder
over every value, and `json.dumps` without NaN: half a second of the event loop for
16,000 tokens, in which no stream moves. Here orjson writes the same, and where it would
write something else, SGLang's own way is taken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from . import logprobs, release

if TYPE_CHECKING:
    from fastapi import Request
    from pydantic import BaseModel
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

Json: TypeAlias = Any
"""Data of JSON, or what is found in its place."""

# Who makes the models of logprobs, and the engine's answers whose logprobs are yet to
# be written, in the order of the choices. None: another than `answer` gets the model.
_unwritten: ContextVar[list[tuple[Any, dict[str, Any]]] | None] = ContextVar(
    "agentcore_unwritten", default=None
)


class RequestTokenIds:
    """`input_ids` of a request, an `Optional[Union[List[List[int]], List[int]]]`.

    A list of IDs is taken as it is: pydantic tries lists of lists first, and makes an
    error of each ID, 20 ms for 32,000. The rest is left to pydantic.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        vanilla = list[list[int]] | list[int] | None
        return core_schema.no_info_wrap_validator_function(
            cls._validate, handler(vanilla)
        )

    @staticmethod
    def _validate(value: Any, handler: Any) -> Any:
        if type(value) is list and set(map(type, value)) == {int}:
            return value
        return handler(value)


async def answer(making: Awaitable[Any]) -> Any:
    """What answers a request: an HTTP response, or a model that FastAPI writes.

    Args:
        making: makes the model, or an error.
    """
    unwritten: list[tuple[Any, dict[str, Any]]] = []
    _unwritten.set(unwritten)
    try:
        response = await making
    finally:
        _unwritten.set(None)
    if not hasattr(response, "choices"):
        return response
    if unwritten:
        written = _write(response, unwritten)
        if written is not None:
            return written
        for choice, (serving, ret_item) in zip(
            response.choices, unwritten, strict=True
        ):
            choice.logprobs = serving._process_response_logprobs(ret_item)
    return response if release.PYDANTIC_ANSWERS else _write(response, []) or response


def build_logprobs(serving: OpenAIServingChat, ret_item: dict[str, Any]) -> Any:
    """The model of a choice's logprobs.

    No model per token: where `answer` writes them, it has the first token's only.
    """
    unwritten = _unwritten.get()
    if unwritten is not None:
        unwritten.append((serving, ret_item))
        meta_info = logprobs.of_first(ret_item["meta_info"], 1)
        ret_item = {**ret_item, "meta_info": meta_info}
    return serving._process_response_logprobs(ret_item)


def _write(response: BaseModel, unwritten: list[tuple[Any, dict[str, Any]]]) -> Any:
    """The HTTP response that FastAPI makes of a model, None if it is written otherwise.

    Args:
        unwritten: of each choice, if the model has the first token's logprobs only.
    """
    from fastapi import Response

    try:
        content = prepare_for_orjson(response.model_dump(mode="json", by_alias=True))
        choices = content["choices"] if unwritten else []
        for choice, (serving, ret_item) in zip(choices, unwritten, strict=True):
            whole = ret_item["meta_info"]
            openings = logprobs.openings_of(serving.tokenizer_manager.tokenizer)
            first = logprobs.of_first(whole, 1)
            written = logprobs.write(first, openings, dump_numbers)
            if orjson.dumps(choice["logprobs"]) != written.encode():
                return None
            text = logprobs.write(whole, openings, dump_numbers)
            choice["logprobs"] = orjson.Fragment(text)
        return Response(orjson.dumps(content), media_type="application/json")
    except logprobs.UNUSUAL:
        return None


def dump_numbers(values: list[float]) -> list[str]:
    """The JSON of each number, as this release writes it in whole answers.

    `json.dumps`, which FastAPI calls, writes 1e-07, pydantic 1e-7 and null for NaN.

    Raises:
        ValueError: a value is no float, or FastAPI would refuse it as not finite.
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
    """JSON data of which orjson makes the bytes that FastAPI makes of `value`.

    Raises:
        TypeError: FastAPI would convert the value, or drop a key.
        ValueError: a number that is not finite, which is an error in FastAPI.
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
    """The HTTP response for the engine's answer; or the answer, left to FastAPI.

    Args:
        endpoint: what answers `/generate`, which other endpoints call for the answer.
    """
    if request.scope.get("endpoint") is endpoint:
        body = write_generated(content)
        if body is not None:
            from fastapi import Response

            return Response(body, media_type="application/json")
    return content


def write_generated(content: Any) -> bytes | None:
    """The JSON of the engine's answer, None if FastAPI would write another."""
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
    """Whether FastAPI writes what orjson takes without a change: no NaN, no `_sa` keys.

    orjson writes NaN as null, FastAPI refuses it and drops SQLAlchemy's keys.
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
        # Rows of one length, as logprobs are: by column.
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
