"""Defects under load, at aborts and pauses, for clients, and varying answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agentcore_verify.client import Json
from agentcore_verify.results import Outcome
from tests.helpers.waiting import wait_until
from tests.live.defects.planting import (
    ChatStream,
    ChatWhole,
    in_choice,
    in_chunk,
    in_response,
    in_stream,
    plant,
    with_ids,
)
from tests.live.proxy import Defect, Proxy


def under_load(proxy: Proxy, events: Iterator[Json]) -> Iterator[Json]:
    """Hold back the events of a stream until many streams are open."""
    wait_until(lambda: proxy.most_streaming > 8)
    return events


@plant("another stream's prompt", "concurrency", "of another request", rule=9)
class MixedUnderLoad(ChatStream):
    kept: list[int] | None = None

    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in under_load(self.proxy, events):
            if prompt := event.get("prompt_token_ids"):
                event["prompt_token_ids"] = self.kept or prompt
                self.kept = prompt
            yield event


@plant("IDs repeated by an abort", "interruption", "aborted: token_ids", rule=10)
class RepeatedByAbort(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        last: list[int] = []
        aborted = False
        for _, event, ids in with_ids(events):
            last = ids[-1:] or last
            for choice in event["choices"]:
                if choice["finish_reason"] == "abort":
                    aborted = True
                    # Twice: a single one may be the regular continuation.
                    choice["token_ids"] = ids + 2 * last
                    # As if the engine had sent it.
                    choice["logprobs"] = {
                        "content": [
                            *((choice["logprobs"] or {}).get("content") or ()),
                            *2 * [{"token": "", "logprob": 0.0, "top_logprobs": []}],
                        ]
                    }
            if event.get("usage") and aborted:
                event["usage"]["completion_tokens"] += 2
            yield event


@plant("an ID lost by a pause", "pauses", "differ from those")
class LostByPause(ChatStream):
    paused = False

    def whole(self, path: str, body: Json, response: Any) -> None:
        self.paused |= path == "/pause_generation"

    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for _, event, ids in with_ids(events):
            if self.paused and len(ids) > 0:
                self.paused = False
                event["choices"][0]["token_ids"] = ids[1:]
            yield event


@plant("a pause after the last token", "pauses", "the pause", Outcome.NOT_EXERCISED)
class LatePause(Defect):
    def request(self, path: str, body: Json) -> Json:
        if path == "/pause_generation":
            wait_until(lambda: self.proxy.n_streaming == 0)
        return body


@in_chunk("IDs that no client sees", "openai-client", "what the server sent")
def _(body: Json, choice: Json) -> None:
    choice["delta"]["token_ids"] = choice.pop("token_ids", None)


@in_stream("a completion's token lost", "other-traces", "/v1/completions, streaming")
def _(path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
    lost = False
    for event in events:
        for choice in event.get("choices", ()):
            if not lost and "text" in choice and choice.get("token_ids"):
                del choice["token_ids"][0]
                lost = True
        yield event


@in_response("a message without its IDs", "other-traces", "/v1/messages, non-streaming")
def _(path: str, body: Json, response: Any) -> None:
    if path == "/v1/messages":
        response.pop("token_ids", None)
        response.pop("token_logprobs", None)


@in_choice("logprobs whose tokens are text", "other-traces", "token_id:")
def _(body: Json, choice: Json) -> None:
    if "return_tokens_as_token_ids" in body:
        for entry in choice["logprobs"]["content"]:
            entry["token"] = "x"


@in_choice("a flat logprob lost", "other-traces", "are not the logprobs")
def _(body: Json, choice: Json) -> None:
    if choice.get("token_logprobs"):
        choice["token_logprobs"].pop()


@plant("answers that vary", "determinism", "different answers", Outcome.INCONCLUSIVE)
class Varying(ChatWhole):
    count = 0

    def chat(self, body: Json, response: Json) -> None:
        self.count += 1
        if self.count % 2:
            response["choices"][0]["token_ids"][5] += 1


@plant("a third answer that varies", "same-ids", "different", Outcome.INCONCLUSIVE)
class ThirdVaries(ChatWhole):
    """Varies from a stream on, so that the two answers before it are equal."""

    count = 0

    def chat(self, body: Json, response: Json) -> None:
        if self.count:
            response["choices"][0]["token_ids"][5] += 1

    def stream(self, path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        self.count += 1
        for number, event, _ in with_ids(events):
            if number == 4:
                event["choices"][0]["token_ids"][0] += 1
            yield event


@in_choice("a token of other weights", "weight-versions", "did not sample it", rule=18)
def _(body: Json, choice: Json) -> None:
    match choice.get("weight_versions"):
        case [old, new]:
            old["end"] += 1
            new["start"] += 1


@plant("a cache of other weights", "weight-versions", "other weights", rule=19)
class OldCache(ChatWhole):
    """Active after the last update, until the cache is flushed."""

    updated = False

    def request(self, path: str, body: Json) -> Json:
        if path == "/update_weights_from_disk":
            self.updated = body["weight_version"] == "third"
        self.updated &= path != "/flush_cache"
        return body

    def choice(self, body: Json, choice: Json) -> None:
        if self.updated:
            choice["logprobs"]["content"][0]["logprob"] -= 0.5


@in_chunk("versions on no chunk", "weight-versions", "no weight_versions")
def _(body: Json, choice: Json) -> None:
    choice.pop("weight_versions", None)
