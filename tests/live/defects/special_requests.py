"""Defects in responses to special requests: `n`, stop, token-in, bad requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agentcore_verify.client import Json
from agentcore_verify.probe import MIRROR_KEY
from tests.live.defects.planting import (
    CHAT,
    ChatChunks,
    ChatWhole,
    plant,
)
from tests.live.proxy import Defect


@plant("the IDs of two choices swapped", "choices", "choice 0")
class ChoicesSwapped(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        choices = response["choices"]
        if len(choices) > 1:
            one, other = choices[0], choices[1]
            one["token_ids"], other["token_ids"] = other["token_ids"], one["token_ids"]


@plant("the IDs of a second choice lost", "choices", "choice 1")
class SecondChoiceLost(ChatChunks):
    def choice(self, body: Json, choice: Json) -> None:
        if choice["index"] == 1:
            choice.pop("token_ids", None)


@plant("the IDs of a stop string lost, in both modes", "stop", "do not decode")
class StopStringLost(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        if body.get("stop"):
            for choice in response["choices"]:
                del choice["token_ids"][-2:]
                del choice["logprobs"]["content"][-2:]
            response["usage"]["completion_tokens"] -= 2


@plant("a token beyond max_tokens, in both modes", "stop", "instead of 14")
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
    def choice(self, body: Json, choice: Json) -> None:
        if choice["index"] > 0:
            choice.pop("prompt_token_ids", None)


@plant("no meta_info", "tito", "meta_info of choice 0")
class NoMetaInfo(ChatWhole):
    def choice(self, body: Json, choice: Json) -> None:
        choice.pop("meta_info", None)


@plant("a token of the prefix changed", "prefix", "does not start with the tokens")
class PrefixChanged(Defect):
    def request(self, path: str, body: Json) -> Json:
        field = "required_prefix_token_ids"
        if path == CHAT and len(body.get(field) or ()) > 9:
            changed = [*body[field]]
            changed[9] ^= 1
            body = {**body, field: changed}
        return body


@plant("a turn closed twice", "prefix", "closed twice")
class ClosedTwice(ChatWhole):
    def chat(self, body: Json, response: Json) -> None:
        required = body.get("required_prefix_token_ids")
        if required and response.get("prompt_token_ids"):
            response["prompt_token_ids"].insert(len(required), required[-1])


@plant("the memory crosses conversations", "prefix", "does not start with the tokens")
class MemoryCrosses(ChatWhole):
    first: list[int]
    n_own = 0

    def chat(self, body: Json, response: Json) -> None:
        if body["messages"][0]["content"] == "cobalt" and len(body["messages"]) > 2:
            n_tokens = len(self.first)
            response["prompt_token_ids"][:n_tokens] = self.first
            said = {"required": self.n_own, "kept": self.n_own, "source": "server"}
            response["metadata"]["prefix"] = {**said, "template_matched": 0}
        elif "content" in body["messages"][0] and len(body["messages"]) == 2:
            [choice] = response["choices"]
            own = [*response["prompt_token_ids"], *choice["token_ids"]]
            self.n_own = len(own)
            if body["messages"][0]["content"] == "amber":
                self.first = own


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
class NullForWhoWantsNone(ChatChunks):
    def choice(self, body: Json, choice: Json) -> None:
        choice.setdefault("token_ids", None)


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


VLLM = "/inference/v1/generate"


@plant("a token of vLLM's endpoint lost", "vllm-api", "differ from the output_ids")
class VllmTokenLost(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == VLLM and "choices" in response:
            choice = response["choices"][0]
            del choice["token_ids"][3], choice["logprobs"]["content"][3]
        return response


@plant("a chunk of vLLM's endpoint lost", "vllm-api", "streaming")
class VllmChunkLost(Defect):
    def stream(self, path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for number, event in enumerate(events):
            if path != VLLM or number != 5:
                yield event


@plant("logprobs of vLLM's endpoint out of step", "vllm-api", "the logprob of token")
class VllmLogprobsOutOfStep(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == VLLM and "choices" in response:
            content = response["choices"][0]["logprobs"]["content"]
            values = [entry["logprob"] for entry in content]
            for entry, value in zip(content, [*values[1:], -7.0], strict=True):
                entry["logprob"] = value
        return response


@plant("one of vLLM's dialects lost", "vllm-api", "token of the logprobs")
class VllmDialectLost(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == VLLM and "choices" in response:
            for entry in response["choices"][0]["logprobs"]["content"]:
                del entry["token"]
        return response


@plant("a salt ignored", "vllm-api", "cache_salt")
class SaltIgnored(Defect):
    def request(self, path: str, body: Json) -> Json:
        if path != VLLM:
            return body
        return {name: value for name, value in body.items() if name != "cache_salt"}


@plant("a parameter ignored", "vllm-api", "was ignored")
class ParameterIgnored(Defect):
    def request(self, path: str, body: Json) -> Json:
        if path != VLLM:
            return body
        params = {**body["sampling_params"]}
        params.pop("allowed_token_ids", None)
        return {**body, "sampling_params": params}


@plant("versions of vLLM's endpoint lost", "vllm-api", "weight_versions are None")
class VllmVersionsLost(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == VLLM and "choices" in response:
            del response["choices"][0]["weight_versions"]
        return response


@plant("a token of a rendered prompt lost", "vllm-api", "prompt_token_ids of chat")
class RenderedTokenLost(Defect):
    def whole(self, path: str, body: Json, response: Any) -> Any:
        if path == "/v1/chat/completions/render":
            del response["token_ids"][3]
        return response


@plant("two of vLLM's endpoints missing", "vllm-api", "not serve /is_paused, /sleep.")
class VllmEndpointsMissing(Defect):
    def refusal(self, path: str, body: Json) -> tuple[int, Json] | None:
        missing = path in ("/is_paused", "/sleep")
        return (404, {"detail": "Not Found"}) if missing else None
