"""Defects in the traces of chat: IDs, logprobs, tool calls, reasoning."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from agentcore_verify.client import Json
from agentcore_verify.results import Outcome
from tests.live.defects.planting import (
    CHAT,
    ChatChunk,
    ChatChunks,
    ChatStream,
    ChatWhole,
    plant,
    with_ids,
)
from tests.live.proxy import Cut, Defect, Lost


@plant("a token dropped from a stream", "same-ids", "differ from those of")
class TokenDropped(ChatChunk):
    def choice(self, choice: Json) -> None:
        del choice["token_ids"][0]


@plant("a token repeated in a stream", "same-ids", "differ from those of")
class TokenRepeated(ChatChunk):
    def choice(self, choice: Json) -> None:
        choice["token_ids"].insert(0, choice["token_ids"][0])


@plant("two tokens swapped in a stream", "same-ids", "differ from those of")
class TokensSwapped(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        held: list[Json] = []
        for number, event, _ in with_ids(events):
            if number == 4:
                held = [event]
            elif held and number == 5:
                one, other = held[0]["choices"][0], event["choices"][0]
                ids = one["token_ids"] + other["token_ids"]
                cut = len(one["token_ids"])
                ids[cut - 1], ids[cut] = ids[cut], ids[cut - 1]
                one["token_ids"], other["token_ids"] = ids[:cut], ids[cut:]
                yield from (*held, event)
                held = []
            elif held:
                held.append(event)
            else:
                yield event
        yield from held


@plant(
    "IDs one chunk later than their text",
    "streaming",
    "not on this or an earlier chunk",
)
class TokensLate(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        late: list[int] = []
        for event in events:
            if event["choices"]:
                choice = event["choices"][0]
                now = choice.get("token_ids") or []
                choice["token_ids"] = late
                late = now
                if choice["finish_reason"]:
                    choice["token_ids"] += late
            yield event


@plant("prompt IDs on two chunks", "streaming", "chunk 0, 1")
class PromptTwice(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        prompt = None
        for number, event in enumerate(events):
            prompt = prompt or event.get("prompt_token_ids")
            if number == 1:
                event["prompt_token_ids"] = prompt
            yield event


@plant("prompt IDs on no chunk", "streaming", "no prompt_token_ids")
class PromptMissing(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            event.pop("prompt_token_ids", None)
            yield event


@plant("prompt IDs on the second chunk", "streaming", "on chunk 1 ")
class PromptLate(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        prompt = None
        for number, event in enumerate(events):
            prompt = prompt or event.pop("prompt_token_ids", None)
            if number == 1:
                event["prompt_token_ids"] = prompt
            yield event


@plant("a stream cut before its end", "streaming", "without [DONE]")
class StreamCut(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        yield from itertools.islice(events, 6)
        raise Cut


@plant("a connection lost in the middle", "streaming", "was cut off")
class ConnectionLost(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        yield from itertools.islice(events, 6)
        raise Lost


@plant("a stream without its last chunk", "streaming", "before choice 0 finished")
class FinishMissing(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            if not any(choice["finish_reason"] for choice in event["choices"]):
                yield event


@plant("an error event in a stream", "streaming", "error event")
class ErrorEvent(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        yield from itertools.islice(events, 6)
        yield {"error": {"message": "planted", "code": 500}}
        yield from events


@plant("a 500 once", "non-streaming", "HTTP 500")
class ErrorOnce(Defect):
    done = False

    def refusal(self, path: str, body: Json) -> tuple[int, Json] | None:
        if path != CHAT or self.done:
            return None
        self.done = True
        return 500, {"message": "planted"}


@plant(
    "the stop token lost, non-streaming", "non-streaming", "but its token_ids end with"
)
class StopTokenMissing(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        for choice in response["choices"]:
            if isinstance(choice.get("matched_stop"), int):
                choice["token_ids"].pop()
                response["usage"]["completion_tokens"] -= 1


@plant("a token lost, non-streaming", "non-streaming", "do not decode to its text")
class WholeTokenMissing(ChatWhole):
    def choice(self, body: Json, choice: Json) -> None:
        del choice["token_ids"][4:5]


@plant("no prompt IDs, non-streaming", "non-streaming", "no prompt_token_ids")
class WholePromptMissing(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        del response["prompt_token_ids"]


@plant("no token IDs, non-streaming", "non-streaming", "no token_ids")
class WholeIdsMissing(ChatWhole):
    def choice(self, body: Json, choice: Json) -> None:
        del choice["token_ids"]


@plant("the prompt IDs of an earlier request", "non-streaming", "decode to the prompt")
class PromptOfAnother(ChatWhole):
    kept: list[int] | None = None

    def chat(self, body: Json, response: Json) -> None:
        kept, self.kept = self.kept, response["prompt_token_ids"]
        response["prompt_token_ids"] = kept or self.kept


@plant("prompt IDs cut short in both modes", "non-streaming", "usage counts")
class PromptShort(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        del response["prompt_token_ids"][0]


@plant("IDs of held-back text lost", "held-back-text", "differ from those of")
class HeldBackLost(ChatChunks):
    def choice(self, body: Json, choice: Json) -> None:
        # Like unpatched SGLang's logprobs: the last of several wins.
        if len(choice.get("token_ids") or ()) > 1:
            choice["token_ids"] = choice["token_ids"][-1:]


@plant("a logprob short", "logprobs", "token_ids but")
class LogprobShort(ChatChunk):
    def choice(self, choice: Json) -> None:
        if choice["logprobs"]:
            choice["logprobs"]["content"].pop()


@plant("the logprobs of the chunk before", "logprobs", "belongs to token")
class LogprobsShifted(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        before: list[Json] = []
        for event in events:
            for choice in event["choices"]:
                if logprobs := choice.get("logprobs"):
                    entries = [*before, *logprobs["content"]]
                    kept = len(logprobs["content"])
                    logprobs["content"] = entries[:kept]
                    before = entries[kept:] or entries[-1:]
            yield event


@plant("a logprob replaced by zero", "logprobs", "logprobs differ from")
class LogprobZero(ChatChunk):
    number = 7

    def choice(self, choice: Json) -> None:
        if choice["logprobs"]:
            choice["logprobs"]["content"][0]["logprob"] = 0.0


@plant("top_logprobs lost", "logprobs", "top_logprobs at position")
class TopLogprobsLost(ChatChunks):
    def choice(self, body: Json, choice: Json) -> None:
        for entry in (choice.get("logprobs") or {}).get("content", ()):
            entry["top_logprobs"] = []


@plant("a tool call without its IDs", "tools", "differ from those of")
class ToolCallIdsMissing(ChatChunks):
    field = "tool_calls"

    def choice(self, body: Json, choice: Json) -> None:
        if choice["delta"].get(self.field):
            choice.pop("token_ids", None)


@plant("a tool call's IDs at the end only", "tools", "not on this or an earlier chunk")
class ToolCallIdsLate(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        late: list[int] = []
        late_logprobs: list[Json] = []
        for event in events:
            for choice in event["choices"]:
                ids, logprobs = choice.get("token_ids"), choice.get("logprobs")
                if body.get("tools") and not choice["finish_reason"]:
                    late += choice.pop("token_ids", None) or []
                    late_logprobs += (logprobs or {}).get("content", [])
                    choice["logprobs"] = None
                elif choice["finish_reason"]:
                    choice["token_ids"] = late + (ids or [])
                    entries = late_logprobs + (logprobs or {}).get("content", [])
                    choice["logprobs"] = {"content": entries}
            yield event


@plant("no tool call parsed", "tools", "found no tool call", Outcome.NOT_EXERCISED)
class NoToolCalls(Defect):
    def request(self, path: str, body: Json) -> Json:
        if "tool_choice" in body:
            return body
        return {key: value for key, value in body.items() if key != "tools"}


@plant("reasoning without its IDs", "reasoning", "differ from those of")
class ReasoningIdsMissing(ToolCallIdsMissing):
    field = "reasoning_content"
