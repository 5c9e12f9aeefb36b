"""Plant defects, and name the checks that must find them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from agentcore_verify.client import Json
from agentcore_verify.results import Outcome
from tests.live.proxy import Defect

CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Planted:
    """A defect, the check that must find it, and a word that its message must have.

    `rule` is the number of the rule that it breaks, 0 if that is tested by another defect.
    """

    name: str
    check: str
    word: str
    make: Callable[[], Defect]
    outcome: Outcome = Outcome.FAILED
    rule: int = 0


PLANTED: list[Planted] = []

Made = TypeVar("Made", bound="type[Defect] | Callable[..., Any]")


@dataclass(frozen=True)
class Planter:
    """Plants a class of defects, or a function as this method of this class."""

    base: type[Defect] = Defect
    method: str = ""

    def __call__(
        self,
        name: str,
        check: str,
        word: str,
        outcome: Outcome = Outcome.FAILED,
        *,
        rule: int = 0,
    ) -> Callable[[Made], Made]:
        def add(made: Made) -> Made:
            defect: Any = made
            if self.method:
                defect = type(name, (self.base,), {self.method: staticmethod(made)})
            PLANTED.append(Planted(name, check, word, defect, outcome, rule))
            return made

        return add


class ChatStream(Defect):
    """Changes chat streams."""

    def stream(self, path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        return self.chat(body, events) if path == CHAT else events

    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for number, event, _ in with_ids(events):
            for choice in event["choices"]:
                self.choice(body, choice)
                if number == 4:
                    self.fifth(choice)
            yield event

    def choice(self, body: Json, choice: Json) -> None:
        """Change a choice of any chunk."""

    def fifth(self, choice: Json) -> None:
        """Change a choice of the fifth chunk with IDs."""


class ChatWhole(Defect):
    """Changes non-streaming chat completions, or each choice of them."""

    def whole(self, path: str, body: Json, response: Any) -> None:
        if path == CHAT:
            self.chat(body, response)

    def chat(self, body: Json, response: Json) -> None:
        for choice in response["choices"]:
            self.choice(body, choice)

    def choice(self, body: Json, choice: Json) -> None: ...


plant = Planter()
in_request = Planter(Defect, "request")
in_place_of_answer = Planter(Defect, "refusal")
in_response = Planter(Defect, "whole")
in_choice = Planter(ChatWhole, "choice")
in_stream = Planter(Defect, "stream")
in_chat_stream = Planter(ChatStream, "chat")
in_chunk = Planter(ChatStream, "choice")
in_fifth_chunk = Planter(ChatStream, "fifth")


def with_ids(events: Iterator[Json]) -> Iterator[tuple[int, Json, list[int]]]:
    """Yield (number among events with IDs, event, IDs); the number is -1 if none."""
    number = 0
    for event in events:
        ids = [i for choice in event["choices"] for i in choice.get("token_ids") or ()]
        yield (number if ids else -1), event, ids
        number += bool(ids)
