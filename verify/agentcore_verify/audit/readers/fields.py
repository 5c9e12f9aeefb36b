"""Fields of recorded JSON, checked when they are read. Null is an empty value, or None."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from ...profiles import REASONING, first_at
from ..turns import Call, Json, Message

LARGEST_ID = 2**31 - 1


class BadRecord(Exception):
    """A line that is not a recorded turn; the message follows its place."""


def _refuse(name: str, expected: str) -> NoReturn:
    raise BadRecord(f"has a `{name}` that is not {expected}")


def obj(value: Any, name: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        _refuse(name, "an object")
    return value


def objs(value: Any, name: str) -> list[Json]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        _refuse(name, "a list of objects")
    return value


def text(value: Any, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        _refuse(name, "a string")
    return value


def optional_text(value: Any, name: str) -> str | None:
    if isinstance(value, int):
        return str(value)
    return None if value is None else text(value, name)


def content(value: Any, name: str) -> str:
    """Return the text of a message, which is a string or a list of parts."""
    if not isinstance(value, list):
        return text(value, name)
    return "".join(
        part if isinstance(part, str) else text(obj(part, name).get("text"), name)
        for part in value
    )


def ids(value: Any, name: str) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        _refuse(name, "a list of integers")
    if value and not 0 <= min(value) <= max(value) <= LARGEST_ID:
        _refuse(name, "a list of token IDs: a number is below 0 or too large")
    return value


def token_lists(events: list[Json]) -> dict[str, list[Any]]:
    """Join the IDs and logprobs of a stream, from the lists on its events."""
    found: dict[str, list[Any]] = {}
    for event in events:
        for name in ("token_ids", "token_logprobs"):
            if isinstance(event.get(name), list):
                found.setdefault(name, []).extend(event[name])
    return found


def numbers(value: Any, name: str) -> list[float | None] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        _refuse(name, "a list of numbers")
    return [number(one, name) for one in value]


def number(value: Any, name: str) -> float | None:
    if type(value) is float or value is None:
        return value
    if type(value) is not int or abs(value) > LARGEST_ID:
        _refuse(name, "a number")
    return float(value)


def count(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if type(value) is not int:
        _refuse(name, "an integer")
    return value


def strings(value: Any, name: str) -> tuple[str, ...]:
    found = value if isinstance(value, list) else [value]
    return tuple(text(one, name) for one in found if one)


def calls(value: Any, name: str) -> tuple[Call, ...]:
    """Return the tool calls of a whole message. verifiers saves each as JSON text."""
    if isinstance(value, list):
        value = [_parsed(part) if isinstance(part, str) else part for part in value]
    return tuple(
        Call(*_name_and_arguments(part, name), _id(part, name))
        for part in objs(value, name)
    )


def streamed_calls(value: Any, name: str) -> tuple[Call, ...]:
    """Join the tool calls of a stream, which has them in parts.

    Some of SGLang's parsers give two calls the same index, but each its own ID.
    """
    joined: list[Call] = []
    latest: dict[int, int] = {}
    for position, part in enumerate(objs(value, name)):
        index = count(part.get("index"), name)
        index = position if index is None else index
        made = _id(part, name)
        place = latest.get(index)
        if place is None or (made and joined[place].id not in (None, made)):
            place = latest[index] = len(joined)
            joined.append(Call("", ""))
        called, arguments = _name_and_arguments(part, name)
        call = joined[place]
        joined[place] = Call(
            call.name + called, call.arguments + arguments, call.id or made
        )
    return tuple(joined)


def _id(part: Json, name: str) -> str | None:
    return optional_text(part.get("id"), name) or None


def _name_and_arguments(part: Json, name: str) -> tuple[str, str]:
    function = obj(part.get("function"), name) or part
    arguments = arguments_text(function.get("arguments"), name)
    return text(function.get("name"), name), arguments


def _parsed(part: str) -> Any:
    try:
        return json.loads(part)
    except (ValueError, RecursionError):
        return None


def arguments_text(value: Any, name: str) -> str:
    """Return the arguments of a tool call, which some records have as an object."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return text(value, name)


def chat(value: Any, name: str = "messages") -> list[Message]:
    return [
        Message(
            role=role(message.get("role"), name),
            text=content(message.get("content"), f"{name}[].content"),
            reasoning=reasoning(message, name),
            calls=calls(message.get("tool_calls"), f"{name}[].tool_calls"),
        )
        for message in objs(value, name)
    ]


def role(value: Any, name: str) -> str:
    """Return the role of a message; `developer` is the same as `system`."""
    found = text(value, name)
    return "system" if found == "developer" else found


def reasoning(message: Json, name: str) -> str:
    """Return the reasoning of a message, which SGLang and vLLM name differently."""
    value = first_at(message, REASONING)
    return text(value, f"{name}[].reasoning_content")
