"""Plant defects, and name the checks that must find them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from agentcore_verify.client import Json
from agentcore_verify.results import Outcome
from tests.live.proxy import Defect

CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Planted:
    """A defect, the check that must find it, and a word that its message must have."""

    name: str
    check: str
    word: str
    make: Callable[[], Defect]
    outcome: Outcome = Outcome.FAILED


PLANTED: list[Planted] = []


def plant(
    name: str, check: str, word: str, outcome: Outcome = Outcome.FAILED
) -> Callable[[type[Defect]], type[Defect]]:
    def add(defect: type[Defect]) -> type[Defect]:
        PLANTED.append(Planted(name, check, word, defect, outcome))
        return defect

    return add


class ChatStream(Defect):
    def stream(self, path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        return self.chat(body, events) if path == CHAT else events

    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        raise NotImplementedError


class ChatChunks(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            for choice in event["choices"]:
                self.choice(body, choice)
            yield event

    def choice(self, body: Json, choice: Json) -> None:
        raise NotImplementedError


class ChatChunk(ChatStream):
    """Changes the first choice on one chunk of chat streams: the fifth with IDs."""

    number = 4

    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for number, event, _ in with_ids(events):
            if number == self.number:
                self.choice(event["choices"][0])
            yield event

    def choice(self, choice: Json) -> None:
        raise NotImplementedError


class ChatWhole(Defect):
    """Changes non-streaming chat completions, or each choice of them."""

    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == CHAT:
            self.chat(body, response)
        return response

    def chat(self, body: Json, response: Json) -> None:
        for choice in response["choices"]:
            self.choice(body, choice)

    def choice(self, body: Json, choice: Json) -> None:
        raise NotImplementedError


def with_ids(events: Iterator[Json]) -> Iterator[tuple[int, Json, list[int]]]:
    """Yield (number among events with IDs, event, IDs); the number is -1 if none."""
    number = 0
    for event in events:
        ids = [i for choice in event["choices"] for i in choice.get("token_ids") or ()]
        yield (number if ids else -1), event, ids
        number += bool(ids)
