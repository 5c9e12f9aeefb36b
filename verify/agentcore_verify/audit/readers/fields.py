"""Objects of recorded JSON, whose fields are checked when they are read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from ...profiles import REASONING, Json
from ..turns import Call, Message

LARGEST_ID = 2**31 - 1

T = TypeVar("T")


class BadRecord(Exception):
    """A line that is not a recorded turn; the message follows its place."""


@dataclass(frozen=True)
class Record:
    """An object of a line. Null is an empty value, or None.

    `name` is its place in the line, which messages about its fields begin with.
    """

    values: Json
    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.values)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str) -> Any:
        """Return a value of any type."""
        return self.values.get(key)

    def _place(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def _refuse(self, key: str, expected: str) -> NoReturn:
        raise BadRecord(f"has a `{self._place(key)}` that is not {expected}")

    def _read(self, key: str, kind: type[T], expected: str) -> T | None:
        value = self.get(key)
        if value is not None and type(value) is not kind:
            self._refuse(key, expected)
        return value

    def obj(self, key: str) -> Record:
        return Record(self._read(key, dict, "an object") or {}, self._place(key))

    def objs(self, key: str) -> list[Record]:
        values = self._read(key, list, "a list of objects") or []
        if not all(isinstance(one, dict) for one in values):
            self._refuse(key, "a list of objects")
        return [Record(one, f"{self._place(key)}[]") for one in values]

    def text(self, key: str) -> str:
        return self._read(key, str, "a string") or ""

    def optional_text(self, key: str) -> str | None:
        value = self.get(key)
        if value is None or isinstance(value, int):
            return None if value is None else str(value)
        return self.text(key)

    def strings(self, key: str) -> tuple[str, ...]:
        """Return the strings of a list, or one that is not in a list."""
        value = self.get(key)
        found = value if isinstance(value, list) else [value]
        return tuple(Record({key: one}, self.name).text(key) for one in found if one)

    def count(self, key: str) -> int | None:
        return self._read(key, int, "an integer")

    def ids(self, key: str) -> list[int] | None:
        values = self._read(key, list, "a list of integers")
        if values and not all(type(one) is int for one in values):
            self._refuse(key, "a list of integers")
        if values and not 0 <= min(values) <= max(values) <= LARGEST_ID:
            self._refuse(key, "a list of token IDs: a number is below 0 or too large")
        return values

    def number(self, key: str) -> float | None:
        value = self.get(key)
        if type(value) is float or value is None:
            return value
        if type(value) is not int or abs(value) > LARGEST_ID:
            self._refuse(key, "a number")
        return float(value)

    def numbers(self, key: str) -> list[float | None] | None:
        values = self._read(key, list, "a list of numbers")
        if values is None:
            return None
        return [Record({key: one}, self.name).number(key) for one in values]

    def content(self, key: str = "content") -> str:
        """Return the text of a message, which is a string or a list of parts."""
        value = self.get(key)
        if not isinstance(value, list):
            return self.text(key)
        return "".join(
            part
            if isinstance(part, str)
            else Record({key: part}, self.name).obj(key).text("text")
            for part in value
        )

    def reasoning(self) -> str:
        """Return the reasoning of a message, which SGLang and vLLM name differently."""
        return next(filter(None, map(self.text, REASONING)), "")

    def role(self) -> str:
        """Return the role of a message; `developer` is the same as `system`."""
        found = self.text("role")
        return "system" if found == "developer" else found

    def messages(self, key: str) -> list[Message]:
        return [
            Message(one.role(), one.content(), one.reasoning(), one.calls())
            for one in self.objs(key)
        ]

    def calls(self) -> tuple[Call, ...]:
        """Return the tool calls of a whole message; verifiers saves each as JSON text."""
        key = "tool_calls"
        value = self.get(key)
        if isinstance(value, list):
            value = [_parsed(part) if isinstance(part, str) else part for part in value]
        return tuple(part.call() for part in Record({key: value}, self.name).objs(key))

    def call(self) -> Call:
        """Return this tool call, or this part of one in a stream."""
        function = self.obj("function") or self
        return Call(
            function.text("name"),
            function.arguments("arguments"),
            self.optional_text("id") or None,
        )

    def arguments(self, key: str) -> str:
        """Return the arguments of a tool call, which some records have as an object."""
        if isinstance(value := self.get(key), dict):
            return json.dumps(value, ensure_ascii=False)
        return self.text(key)


def _parsed(part: str) -> Any:
    try:
        return json.loads(part)
    except (ValueError, RecursionError):
        return None


def streamed_calls(parts: Iterable[Record]) -> tuple[Call, ...]:
    """Join the tool calls of a stream, which has them in parts.

    Some of SGLang's parsers give two calls the same index, but each its own ID.
    """
    joined: list[Call] = []
    latest: dict[int, int] = {}
    for position, part in enumerate(parts):
        index = part.count("index")
        index = position if index is None else index
        new = part.call()
        place = latest.get(index)
        if place is None or (new.id and joined[place].id not in (None, new.id)):
            place = latest[index] = len(joined)
            joined.append(Call("", ""))
        call = joined[place]
        joined[place] = Call(
            call.name + new.name, call.arguments + new.arguments, call.id or new.id
        )
    return tuple(joined)


def token_lists(events: list[Record]) -> dict[str, list[Any]]:
    """Join the IDs and logprobs of a stream, from the lists on its events."""
    found: dict[str, list[Any]] = {}
    for event in events:
        for name in ("token_ids", "token_logprobs"):
            if isinstance(part := event.get(name), list):
                found.setdefault(name, []).extend(part)
    return found
