"""Lands in `io_struct.py`, `serving_base.py`, `serving_chat.py`, `http_server.py`.

For `fast-answers`. What vanilla does with an answer: `model_dump(mode="json")`, FastAPI's
encoder over every value, `json.dumps` without NaN. Here orjson writes the same, or else
vanilla does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

if TYPE_CHECKING:
    import orjson


class _RequestTokenIds:
    """`input_ids` of a request, an `Optional[Union[List[List[int]], List[int]]]`.

    A list of IDs is taken as it is: pydantic tries lists of lists first, and makes an
    error of each ID, 20 ms for 32,000. The rest is left to pydantic.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        schema = handler(Optional[Union[List[List[int]], List[int]]])
        return core_schema.no_info_wrap_validator_function(cls._validate, schema)

    @staticmethod
    def _validate(value: Any, handler: Any) -> Any:
        if type(value) is list and set(map(type, value)) == {int}:
            return value
        return handler(value)


def _dump_numbers(values: List[float]) -> List[bytes]:
    """The JSON of each number, as `json.dumps` writes it: 1e-07, where orjson has 1e-7.

    Raises:
        ValueError: one is no float, or not finite.
    """
    if set(map(type, values)) - {float} or not abs(sum(values)) < float("inf"):
        raise ValueError("a number is no finite float")
    return [
        text if 1e-4 <= abs(value) < 1e15 else repr(value).encode()
        for text, value in zip(orjson.dumps(values)[1:-1].split(b","), values)
    ]


def _prepare_for_orjson(value: Any) -> Any:
    """JSON data of which orjson makes the bytes that FastAPI makes of `value`.

    Raises:
        TypeError: FastAPI would convert the value, or drop a key.
        ValueError: a number that is not finite, which is an error in FastAPI.
    """
    kind = type(value)
    if kind is float:
        return orjson.Fragment(_dump_numbers([value])[0])
    if kind is dict:
        if any(type(key) is not str or key.startswith("_sa") for key in value):
            raise TypeError("FastAPI does not keep these keys as they are")
        return {key: _prepare_for_orjson(item) for key, item in value.items()}
    if kind is list:
        kinds = set(map(type, value))
        if kinds <= {int, str}:
            return value
        if kinds == {float}:
            return orjson.Fragment(b"[%b]" % b",".join(_dump_numbers(value)))
        return [_prepare_for_orjson(item) for item in value]
    if kind in (str, int, bool, type(None)):
        return value
    raise TypeError(f"{kind.__name__} is not JSON")


def _write_answer(response: Any) -> Any:
    """The HTTP response that FastAPI makes of a model, without FastAPI's encoder.

    What has no choices comes back as it is, as does what FastAPI would write in another
    way.
    """
    from fastapi import Response

    if not hasattr(response, "choices"):
        return response
    try:
        content = _prepare_for_orjson(response.model_dump(mode="json", by_alias=True))
        return Response(orjson.dumps(content), media_type="application/json")
    except (TypeError, ValueError):
        return response


def _dump_logprobs(meta_info: Dict[str, Any]) -> bytes:
    """The JSON of a chat choice's logprobs, from the engine's lists.

    Raises:
        AttributeError, IndexError, TypeError, ValueError: they have another form.
    """
    entries = meta_info["output_token_logprobs"]
    tops = meta_info.get("output_top_logprobs") or []
    rows = [*entries, *(row for top in tops for row in top)]
    # A text is missing where tokens are to be named by ID.
    texts = [f"token_id:{row[1]}" if row[2] is None else row[2] for row in rows]
    numbers = _dump_numbers([row[0] for row in rows])
    # What stands before the logprob, once for each text: most come again and again.
    openings: Dict[str, bytes] = {}
    for text in set(texts):
        token = orjson.dumps({"token": text, "bytes": list(text.encode("utf-8"))})
        openings[text] = token[:-1] + b',"logprob":'
    count = len(entries)
    beginnings = [openings[text] for text in texts[:count]]
    endings = [b',"top_logprobs":[]},'] * count
    if tops and len(tops) != count:
        raise ValueError(f"{len(tops)} top_logprobs for {count} tokens")
    others = zip(texts[count:], numbers[count:])
    for i, top in enumerate(tops):
        # Of several tokens with the same text one is kept, as in vanilla.
        kept = dict([pair for _, pair in zip(top, others)])
        joined = b",".join([openings[text] + kept[text] + b"}" for text in kept])
        endings[i] = b',"top_logprobs":[%b]},' % joined
    parts = [
        part
        for beginning, number, ending in zip(beginnings, numbers, endings)
        for part in (beginning, number, ending)
    ]
    return b'{"content":[%b]}' % b"".join(parts)[:-1]


def _keep_first_token(ret_item: Dict[str, Any]) -> Dict[str, Any]:
    """An answer of the engine with the logprobs of its first token only."""
    meta_info = dict(ret_item["meta_info"])
    for key in ("output_token_logprobs", "output_top_logprobs"):
        if meta_info.get(key):
            meta_info[key] = meta_info[key][:1]
    return {**ret_item, "meta_info": meta_info}


def _write_chat_answer(
    self, response: Any, ret: List[Dict[str, Any]], add_bytes: Any = None
) -> Any:
    """The HTTP response for an answer with the first token's logprobs only.

    Pydantic writes all but the other tokens' logprobs. Where it writes the first
    one's in another way than `_dump_logprobs`, it writes them all.

    Args:
        add_bytes: gives the engine's answers what `_dump_logprobs` needs of the
            tokenizer, if it needs any.
    """
    from fastapi import Response
    from sglang.srt.entrypoints.openai.serving_base import (
        _dump_logprobs,
        _prepare_for_orjson,
    )

    if not hasattr(response, "choices"):
        return response
    try:
        if add_bytes is not None:
            ret = add_bytes(ret, self.tokenizer_manager.tokenizer)
        data = response.model_dump(mode="json", by_alias=True)
        content = _prepare_for_orjson(data)
        for choice, ret_item in zip(content["choices"], ret):
            first = _dump_logprobs(_keep_first_token(ret_item)["meta_info"])
            if orjson.dumps(choice["logprobs"]) != first:
                raise TypeError("the models were changed")
            whole = _dump_logprobs(ret_item["meta_info"])
            choice["logprobs"] = orjson.Fragment(whole)
        return Response(orjson.dumps(content), media_type="application/json")
    except (AttributeError, LookupError, TypeError, ValueError):
        for model, ret_item in zip(response.choices, ret):
            model.logprobs = self._process_response_logprobs(ret_item)
        return response


def _is_plain(value: Any) -> bool:
    """Whether FastAPI writes what orjson takes without a change: no NaN, no `_sa` keys.

    orjson writes NaN as null, FastAPI refuses it and drops SQLAlchemy's keys.
    """
    from operator import itemgetter

    kind = type(value)
    if kind is dict:
        return all(not key.startswith("_sa") for key in value) and all(
            map(_is_plain, value.values())
        )
    if kind not in (list, tuple):
        value = (value,)
    kinds = set(map(type, value))
    if kinds and kinds <= {list, tuple}:
        # Rows of one length, as logprobs are: by column.
        if len(set(map(len, value))) == 1:
            width = range(len(value[0]))
            return all(_is_plain(list(map(itemgetter(i), value))) for i in width)
        return _is_plain([item for row in value for item in row])
    if kinds & {dict, list, tuple}:
        return all(map(_is_plain, value))
    if float in kinds:
        numbers = value
        if len(kinds) > 1:
            numbers = [item for item in value if type(item) is float]
        if not abs(sum(numbers)) < float("inf"):
            return False
    return kinds <= {float, int, str, bool, type(None)}


def _write_generated(content: Any) -> Optional[bytes]:
    """The JSON of the engine's answer, None if FastAPI would write another."""
    try:
        data: bytes = orjson.dumps(
            content,
            option=orjson.OPT_PASSTHROUGH_DATACLASS
            | orjson.OPT_PASSTHROUGH_DATETIME
            | orjson.OPT_PASSTHROUGH_SUBCLASS,
        )
    except TypeError:
        return None
    return data if _is_plain(content) else None
