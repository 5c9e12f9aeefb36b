"""Every check of `verify` can fail: defects planted in what a patched server says.

A proxy between `verify` and a real patched server plants one defect at a time. The
check that is there for it must find it, and say what it found.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentcore_verify import checks
from agentcore_verify.client import Json
from agentcore_verify.probe import MIRROR_KEY
from agentcore_verify.results import Outcome
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.waiting import wait_until
from tests.live.proxy import Cut, Defect, Lost, Proxy

CHAT = "/v1/chat/completions"

# A server with a reasoning parser, which the checks need.
on_a_server = pytest.mark.parametrize("mode", ["reasoning"], indirect=True)


@dataclass(frozen=True)
class Planted:
    """A defect, the check that must find it, and a word that must name it."""

    name: str
    check: str
    word: str
    make: Callable[[Proxy], Defect]
    outcome: Outcome = Outcome.FAILED


PLANTED: list[Planted] = []


def plant(
    name: str, check: str, word: str, outcome: Outcome = Outcome.FAILED
) -> Callable[[type[Defect]], type[Defect]]:
    def add(defect: type[Defect]) -> type[Defect]:
        def make(proxy: Proxy) -> Defect:
            made = defect()
            proxy.most_streaming = 0
            made.proxy = proxy  # type: ignore[attr-defined]
            return made

        PLANTED.append(Planted(name, check, word, make, outcome))
        return defect

    return add


class ChatStream(Defect):
    """Changes the events of chat streams."""

    def stream(self, path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        return self.chat(body, events) if path == CHAT else events

    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        raise NotImplementedError


class ChatWhole(Defect):
    """Changes non-streaming chat completions."""

    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == CHAT:
            self.chat(body, response)
        return response

    def chat(self, body: Json, response: Json) -> None:
        raise NotImplementedError


def with_ids(events: Iterator[Json]) -> Iterator[tuple[int, Json, list[int]]]:
    """(number among those with IDs, event, its IDs); the number is -1 without IDs."""
    number = 0
    for event in events:
        ids = [i for choice in event["choices"] for i in choice.get("token_ids") or ()]
        yield (number if ids else -1), event, ids
        number += bool(ids)


@plant("a token dropped from a stream", "same-ids", "differ from those of")
class TokenDropped(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for number, event, ids in with_ids(events):
            if number == 4:
                event["choices"][0]["token_ids"] = ids[1:]
            yield event


@plant("a token repeated in a stream", "same-ids", "differ from those of")
class TokenRepeated(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for number, event, ids in with_ids(events):
            if number == 4:
                event["choices"][0]["token_ids"] = [ids[0], *ids]
            yield event


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
    def chat(self, body: Json, response: Json) -> None:
        for choice in response["choices"]:
            del choice["token_ids"][4:5]


@plant("no prompt IDs, non-streaming", "non-streaming", "no prompt_token_ids")
class WholePromptMissing(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        del response["prompt_token_ids"]


@plant("no token IDs, non-streaming", "non-streaming", "no token_ids")
class WholeIdsMissing(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        for choice in response["choices"]:
            del choice["token_ids"]


@plant("the prompt IDs of an earlier request", "non-streaming", "decode to the prompt")
class PromptOfAnother(ChatWhole):
    kept: list[int] | None = None

    def chat(self, body: Json, response: Json) -> None:
        kept, self.kept = self.kept, response["prompt_token_ids"]
        response["prompt_token_ids"] = kept or self.kept


@plant("prompt IDs cut short in both modes", "non-streaming", "usage counts")
class PromptShort(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == CHAT:
            del response["prompt_token_ids"][0]
        return response


@plant("IDs of held-back text lost", "held-back-text", "differ from those of")
class HeldBackLost(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            for choice in event["choices"]:
                # What vanilla does with logprobs: the last of several stands.
                if len(choice.get("token_ids") or ()) > 1:
                    choice["token_ids"] = choice["token_ids"][-1:]
            yield event


@plant("a logprob short", "logprobs", "token_ids but")
class LogprobShort(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for number, event, _ in with_ids(events):
            if number == 4 and event["choices"][0]["logprobs"]:
                event["choices"][0]["logprobs"]["content"].pop()
            yield event


@plant("the logprobs of the chunk before", "logprobs", "belongs to token")
class LogprobsShifted(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        before: list[Json] = []
        for event in events:
            for choice in event["choices"]:
                if logprobs := choice.get("logprobs"):
                    entries = [*before, *logprobs["content"]]
                    kept = len(logprobs["content"])
                    logprobs["content"], before = (
                        entries[:kept],
                        entries[kept:] or (entries[-1:]),
                    )
            yield event


@plant("a logprob replaced by zero", "logprobs", "logprobs differ from")
class LogprobZero(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for number, event, _ in with_ids(events):
            if number == 7 and event["choices"][0]["logprobs"]:
                event["choices"][0]["logprobs"]["content"][0]["logprob"] = 0.0
            yield event


@plant("top_logprobs lost", "logprobs", "top_logprobs at position")
class TopLogprobsLost(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            for choice in event["choices"]:
                for entry in (choice.get("logprobs") or {}).get("content", ()):
                    entry["top_logprobs"] = []
            yield event


@plant("a tool call without its IDs", "tools", "differ from those of")
class ToolCallIdsMissing(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            for choice in event["choices"]:
                if choice["delta"].get("tool_calls"):
                    choice.pop("token_ids", None)
            yield event


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
class ReasoningIdsMissing(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            for choice in event["choices"]:
                if choice["delta"].get("reasoning_content"):
                    choice.pop("token_ids", None)
            yield event


@plant("the IDs of two choices swapped", "choices", "do not decode to its text")
class ChoicesSwapped(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        choices = response["choices"]
        if len(choices) > 1:
            one, other = choices[0], choices[1]
            one["token_ids"], other["token_ids"] = other["token_ids"], one["token_ids"]


@plant("the IDs of a second choice lost", "choices", "choice 1")
class SecondChoiceLost(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            for choice in event["choices"]:
                if choice["index"] == 1:
                    choice.pop("token_ids", None)
            yield event


@plant("the IDs of a stop string lost, in both modes", "stop", "do not decode")
class StopStringLost(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == CHAT and body.get("stop"):
            for choice in response["choices"]:
                del choice["token_ids"][-2:]
                del choice["logprobs"]["content"][-2:]
            response["usage"]["completion_tokens"] -= 2
        return response


@plant("a token beyond max_tokens, in both modes", "stop", "instead of 15")
class TokenTooMany(Defect):
    def request(self, path: str, body: Json) -> Json:
        few = body.get("max_tokens", 100) < 100
        return {**body, "max_tokens": body["max_tokens"] + 1} if few else body


@plant("input_ids ignored", "tito", "differ from the input_ids")
class InputIdsIgnored(Defect):
    def request(self, path: str, body: Json) -> Json:
        if path != CHAT:
            return body
        return {key: value for key, value in body.items() if key != "input_ids"}


@plant("prompt IDs on the first choice alone", "tito", "of choice 1")
class PromptOnFirstChoice(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        for choice in response["choices"][1:]:
            choice.pop("prompt_token_ids", None)


@plant("no meta_info", "tito", "meta_info of choice 0")
class NoMetaInfo(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        for choice in response["choices"]:
            choice.pop("meta_info", None)


@plant("/generate without prompt IDs", "tito", "/generate")
class GenerateWithoutPrompt(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == "/generate":
            for output in response if isinstance(response, list) else [response]:
                output.pop("prompt_token_ids", None)
        return response


@plant("a bad prompt crashes", "refusals", "HTTP 500")
class BadPromptCrashes(Defect):
    def refusal(self, path: str, body: Json) -> tuple[int, Json] | None:
        crash = path == CHAT and body.get("input_ids") == []
        return (
            (500, {"message": "input_ids: list index out of range"}) if crash else None
        )


@plant("a bad prompt answered", "refusals", "was answered")
class BadPromptAnswered(Defect):
    def request(self, path: str, body: Json) -> Json:
        bad = body.get("input_ids") == [1, -1]
        return {**body, "input_ids": [1, 2]} if bad else body


@plant("a refusal that does not say why", "refusals", "does not name 'input_ids'")
class RefusalWithoutReason(Defect):
    def refusal(self, path: str, body: Json) -> tuple[int, Json] | None:
        bad = body.get("input_ids") == [[1, 2]]
        return (400, {"message": "Bad request"}) if bad else None


@plant("a /generate without meta_info", "customized-info", "expected form")
class NoMetaInfoAtAll(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == "/generate" and isinstance(response, dict):
            del response["meta_info"]
        return response


@plant("metadata of the last tokens only", "customized-info", "for 120 output_ids")
class MetadataShort(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == "/generate":
            for output in response if isinstance(response, list) else [response]:
                del output["meta_info"][MIRROR_KEY][:-20]
        return response


@plant("metadata out of step on a chunk", "customized-info", "values of the sampler")
class MetadataOutOfStep(Defect):
    def stream(self, path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for number, event in enumerate(events):
            if path == "/generate" and number == 60:
                event["meta_info"][MIRROR_KEY].pop(0)
            yield event


@plant("the last chunk of /generate lost", "customized-info", "tokens arrived")
class GenerateChunkLost(Defect):
    def stream(self, path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            last = path == "/generate" and event["meta_info"]["finish_reason"]
            if not last:
                yield event


@plant("token_ids of null for who wants none", "opt-out", "the answer has token_ids")
class NullForWhoWantsNone(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            for choice in event["choices"]:
                choice.setdefault("token_ids", None)
            yield event


@plant("a field of vanilla's lost", "opt-out", "differs from the one with token IDs")
class VanillaFieldLost(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        if body.get("return_token_ids") is False:
            del response["metadata"]


@plant("token_ids in /v1/completions", "other-endpoints", "the answer has token_ids")
class IdsInCompletions(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == "/v1/completions":
            response["choices"][0]["token_ids"] = [1]
        return response


class UnderLoad(ChatStream):
    """Holds streams back until many are open, so that they are whenever this is used."""

    proxy: Proxy

    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        wait_until(lambda: self.proxy.most_streaming > 8)
        return self.loaded(events)

    def loaded(self, events: Iterator[Json]) -> Iterable[Json]:
        raise NotImplementedError


@plant("tokens lost under load only", "concurrency", "of choice 0")
class LostUnderLoad(UnderLoad):
    def loaded(self, events: Iterator[Json]) -> Iterable[Json]:
        for number, event, ids in with_ids(events):
            if number == 6:
                event["choices"][0]["token_ids"] = ids[1:]
            yield event


@plant("another stream's prompt under load", "concurrency", "of another request")
class MixedUnderLoad(UnderLoad):
    kept: list[int] | None = None

    def loaded(self, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            if prompt := event.get("prompt_token_ids"):
                event["prompt_token_ids"] = self.kept or prompt
                self.kept = prompt
            yield event


@plant("the last ID repeated by an abort", "interruption", "not the first ones")
class RepeatedByAbort(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        last: list[int] = []
        aborted = False
        for _, event, ids in with_ids(events):
            last = ids[-1:] or last
            for choice in event["choices"]:
                if choice["finish_reason"] == "abort":
                    aborted = True
                    # Twice: once is what the answer may go on with.
                    choice["token_ids"] = ids + 2 * last
                    # As if the engine had said so.
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

    def whole(self, path: str, body: Json, response: Any) -> Any:
        self.paused |= path == "/pause_generation"
        return response

    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for _, event, ids in with_ids(events):
            if self.paused and len(ids) > 0:
                self.paused = False
                event["choices"][0]["token_ids"] = ids[1:]
            yield event


@plant(
    "streamed IDs that the client cannot see",
    "openai-client",
    "differ from what the server sent",
)
class UnreadableIds(ChatStream):
    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            for choice in event["choices"]:
                choice["delta"]["token_ids"] = choice.pop("token_ids", None)
            yield event


@plant("a completion's token lost", "other-traces", "/v1/completions, streaming")
class CompletionTokenLost(Defect):
    def stream(self, path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        lost = False
        for event in events:
            for choice in event.get("choices", ()):
                if not lost and "text" in choice and choice.get("token_ids"):
                    choice["token_ids"] = choice["token_ids"][1:]
                    lost = True
            yield event


@plant("a message without its IDs", "other-traces", "/v1/messages, non-streaming")
class MessageWithoutIds(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == "/v1/messages":
            for field in ("token_ids", "token_logprobs"):
                response.pop(field, None)
        return response


@plant("logprobs whose tokens are text", "other-traces", "token_id:")
class TokensAsText(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        if "return_tokens_as_token_ids" in body:
            for choice in response["choices"]:
                for entry in choice["logprobs"]["content"]:
                    entry["token"] = "x"


@plant("answers that vary", "determinism", "different answers", Outcome.INCONCLUSIVE)
class Varying(ChatWhole):
    count = 0

    def chat(self, body: Json, response: Json) -> None:
        self.count += 1
        if self.count % 2:
            response["choices"][0]["token_ids"][5] += 1


@plant("answers that vary, compared", "same-ids", "different", Outcome.INCONCLUSIVE)
class VaryingCompared(Varying):
    """No difference between the modes can be told from one between two runs."""


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.base_url) as running:
        yield running


@pytest.fixture(scope="module")
def correct(proxy: Proxy, sglang_python: Path) -> Subject:
    """The server without a defect, which remembers its non-streaming answers."""
    return Subject(proxy.url, python=sglang_python, launched=True)


# The model takes no images; `test_images` has that check's defects.
TEXT_CHECKS = [name for name in checks.NAMES if name != "images"]


@on_a_server
def test_without_a_defect_all_checks_pass(proxy: Proxy, correct: Subject) -> None:
    proxy.defect = Defect()
    results = list(checks.run(TEXT_CHECKS, correct))
    assert {
        result.check: result.message
        for result in results
        if result.outcome is not Outcome.PASSED
    } == {}


@on_a_server
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_defect_is_found_and_named(
    proxy: Proxy,
    correct: Subject,
    sglang_python: Path,
    planted: Planted,
    count: Counter[str],
) -> None:
    proxy.defect = planted.make(proxy)
    if isinstance(proxy.defect, ChatStream):
        # What is not streamed is as it was.
        subject = correct
    else:
        subject = Subject(proxy.url, python=sglang_python, launched=True)
    [result] = checks.run([planted.check], subject)
    said = " ".join(result.message.split())
    count[f"{planted.name:46} {planted.check:16} {said[:96]}"] += 1
    assert result.outcome is planted.outcome, result
    assert planted.word in result.message
    if "differ from those" in planted.word:
        assert result.difference is not None
        assert any(not row.equal for row in result.difference.rows)


def test_every_check_has_a_defect_that_it_finds() -> None:
    assert {planted.check for planted in PLANTED} == set(TEXT_CHECKS)
