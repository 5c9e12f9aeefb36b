"""Defects in the traces of chat: IDs, logprobs, tool calls, reasoning."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from agentcore_verify.client import Json
from agentcore_verify.results import Outcome
from tests.live.defects.planting import (
    CHAT,
    ChatWhole,
    in_chat_stream,
    in_choice,
    in_chunk,
    in_fifth_chunk,
    in_request,
    in_response,
    plant,
    with_ids,
)
from tests.live.proxy import Cut, Defect, Lost


@in_fifth_chunk("a token lost in a stream", "same-ids", "differ from those of", rule=4)
def _(choice: Json) -> None:
    del choice["token_ids"][0]


@in_chat_stream("IDs after their text", "streaming", "or an earlier chunk", rule=5)
def _(body: Json, events: Iterator[Json]) -> Iterable[Json]:
    late: list[int] = []
    for event in events:
        for choice in event["choices"][:1]:
            late, choice["token_ids"] = choice.get("token_ids") or [], late
            if choice["finish_reason"]:
                choice["token_ids"] += late
        yield event


@in_chat_stream("prompt IDs on the second chunk", "streaming", "on chunk 1 ")
def _(body: Json, events: Iterator[Json]) -> Iterable[Json]:
    first = next(events)
    prompt = first.pop("prompt_token_ids", None)
    yield first
    yield {**next(events), "prompt_token_ids": prompt}
    yield from events


@in_chat_stream("a stream cut before its end", "streaming", "without [DONE]")
def _(body: Json, events: Iterator[Json]) -> Iterable[Json]:
    yield from itertools.islice(events, 6)
    raise Cut


@in_chat_stream("a connection lost in the middle", "streaming", "was cut off")
def _(body: Json, events: Iterator[Json]) -> Iterable[Json]:
    yield from itertools.islice(events, 6)
    raise Lost


@in_chat_stream("an error event in a stream", "streaming", "error event")
def _(body: Json, events: Iterator[Json]) -> Iterable[Json]:
    yield from itertools.islice(events, 6)
    yield {"error": {"message": "planted", "code": 500}}
    yield from events


@plant("the stop token lost", "non-streaming", "but its token_ids end with")
class StopTokenMissing(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        for choice in response["choices"]:
            if isinstance(choice.get("matched_stop"), int):
                choice["token_ids"].pop()
                response["usage"]["completion_tokens"] -= 1


@in_choice("no token IDs, non-streaming", "non-streaming", "no token_ids", rule=1)
def _(body: Json, choice: Json) -> None:
    del choice["token_ids"]


@plant("the prompt of another request", "non-streaming", "decode to the prompt", rule=3)
class PromptOfAnother(ChatWhole):
    kept: list[int] | None = None

    def chat(self, body: Json, response: Json) -> None:
        kept, self.kept = self.kept, response["prompt_token_ids"]
        response["prompt_token_ids"] = kept or self.kept


@in_response("usage that counts one more", "non-streaming", "but usage counts", rule=2)
def _(path: str, body: Json, response: Any) -> None:
    if path == CHAT:
        response["usage"]["completion_tokens"] += 1


@in_chunk("IDs of held-back text lost", "held-back-text", "differ from those of")
def _(body: Json, choice: Json) -> None:
    # Like unpatched SGLang's logprobs: the last of several wins.
    if len(choice.get("token_ids") or ()) > 1:
        choice["token_ids"] = choice["token_ids"][-1:]


@in_chat_stream("logprobs a chunk late", "logprobs", "belongs to token", rule=11)
def _(body: Json, events: Iterator[Json]) -> Iterable[Json]:
    before: list[Json] = []
    for event in events:
        for choice in event["choices"]:
            if logprobs := choice.get("logprobs"):
                entries = [*before, *logprobs["content"]]
                kept = len(logprobs["content"])
                logprobs["content"] = entries[:kept]
                before = entries[kept:] or entries[-1:]
        yield event


@in_chat_stream("a logprob replaced by zero", "logprobs", "logprobs differ from")
def _(body: Json, events: Iterator[Json]) -> Iterable[Json]:
    for number, event, _ in with_ids(events):
        if number == 7 and (logprobs := event["choices"][0]["logprobs"]):
            logprobs["content"][0]["logprob"] = 0.0
        yield event


@in_chunk("top_logprobs lost", "logprobs", "top_logprobs at position")
def _(body: Json, choice: Json) -> None:
    for entry in (choice.get("logprobs") or {}).get("content", ()):
        entry["top_logprobs"] = []


@in_choice("a logprob of -9999", "logprobs", "is -9999", rule=14)
def _(body: Json, choice: Json) -> None:
    choice["logprobs"]["content"][3]["logprob"] = -9999.0


@in_choice("two neighbouring IDs swapped", "re-score", "scored again", rule=12)
def _(body: Json, choice: Json) -> None:
    ids = choice["token_ids"]
    ids[3], ids[4] = ids[4], ids[3]


@in_request("a prompt scored after a change", "re-score", "other IDs were prefilled")
def _(path: str, body: Json) -> Json:
    if path != "/generate":
        return body
    return {**body, "input_ids": [*body["input_ids"][:-1], 7]}


@plant("logprobs that are scaled unasked", "logprob-mode", "not raw", rule=13)
class Scaled(Defect):
    """The real server's own scaling, where raw logprobs are expected."""


@in_choice("logprobs of no meaning", "logprob-mode", "of the raw", Outcome.INCONCLUSIVE)
def _(body: Json, choice: Json) -> None:
    for entry in choice["logprobs"]["content"]:
        for top in entry["top_logprobs"]:
            top["logprob"] *= 2


@in_chunk("a tool call without its IDs", "tools", "differ from those of", rule=8)
def _(body: Json, choice: Json) -> None:
    if choice["delta"].get("tool_calls"):
        choice.pop("token_ids", None)


@in_request("no tool call parsed", "tools", "found no tool call", Outcome.NOT_EXERCISED)
def _(path: str, body: Json) -> Json:
    if "tool_choice" in body:
        return body
    return {key: value for key, value in body.items() if key != "tools"}


@in_chunk("reasoning without its IDs", "reasoning", "differ from those of")
def _(body: Json, choice: Json) -> None:
    if choice["delta"].get("reasoning_content"):
        choice.pop("token_ids", None)
