"""Defects in responses to special requests: `n`, stop, token-in, bad requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agentcore_verify import client
from agentcore_verify.client import Json
from agentcore_verify.probe import MIRROR_KEY
from tests.live.defects.planting import (
    CHAT,
    ChatStream,
    ChatWhole,
    in_choice,
    in_chunk,
    in_place_of_answer,
    in_request,
    in_response,
    in_stream,
    plant,
)
from tests.live.proxy import Defect

GENERATE = "/generate"
VLLM = "/inference/v1/generate"


def without(body: Json, field: str) -> Json:
    return {name: value for name, value in body.items() if name != field}


def outputs(path: str, response: Any) -> list[Json]:
    """Return the outputs of a response of /generate."""
    some = response if isinstance(response, list) else [response]
    return some if path == GENERATE else []


def vllm_choices(path: str, response: Json) -> list[Json]:
    """Return the first choice of a response of vLLM's endpoint."""
    return response["choices"][:1] if path == VLLM and "choices" in response else []


@in_response("the IDs of two choices swapped", "choices", "choice 0", rule=6)
def _(path: str, body: Json, response: Any) -> None:
    if path == CHAT and len(choices := response["choices"]) > 1:
        one, other = choices[:2]
        one["token_ids"], other["token_ids"] = other["token_ids"], one["token_ids"]


@in_response("the IDs of a stop string lost, in both modes", "stop", "do not decode")
def _(path: str, body: Json, response: Any) -> None:
    if path == CHAT and body.get("stop"):
        for choice in response["choices"]:
            del choice["token_ids"][-2:]
            del choice["logprobs"]["content"][-2:]
        response["usage"]["completion_tokens"] -= 2


@in_request("a token beyond max_tokens, in both modes", "stop", "instead of 14", rule=7)
def _(path: str, body: Json) -> Json:
    few = body.get("max_tokens", 100) < 100
    return {**body, "max_tokens": body["max_tokens"] + 1} if few else body


@in_request("input_ids ignored", "tito", "differ from the input_ids", rule=15)
def _(path: str, body: Json) -> Json:
    return without(body, "input_ids") if path == CHAT else body


@in_choice("prompt IDs on the first choice alone", "tito", "of choice 1")
def _(body: Json, choice: Json) -> None:
    if choice["index"] > 0:
        choice.pop("prompt_token_ids", None)


@in_choice("no meta_info", "tito", "meta_info of choice 0")
def _(body: Json, choice: Json) -> None:
    choice.pop("meta_info", None)


@plant("a prefix tokenized again", "prefix", "does not start with the tokens", rule=17)
class TokenizedAgain(ChatStream):
    """Reports the prefix as required; only sampled turns have other tokens than that."""

    n_required = 0

    def request(self, path: str, body: Json) -> Json:
        required = body.get("required_prefix_token_ids")
        if path != CHAT or not required:
            return body
        self.n_required = len(required)
        [text] = self._post("/detokenize", tokens=[required])["text"]
        again = self._post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]
        return {**body, "required_prefix_token_ids": again}

    def _post(self, path: str, **body: Any) -> Any:
        body = {"model": "default", "skip_special_tokens": False, **body}
        return client.post(f"{self.proxy.url}{path}", body).json()

    def whole(self, path: str, body: Json, response: Any) -> None:
        self._report(path, body, response)

    def chat(self, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        for event in events:
            self._report(CHAT, body, event)
            yield event

    def _report(self, path: str, body: Json, event: Any) -> None:
        if path == CHAT and (event.get("metadata") or {}).get("prefix"):
            n_tokens = self.n_required
            event["metadata"]["prefix"] |= {"required": n_tokens, "kept": n_tokens}


@in_response("a turn closed twice", "prefix", "closed twice")
def _(path: str, body: Json, response: Any) -> None:
    required = body.get("required_prefix_token_ids")
    if path == CHAT and required and response.get("prompt_token_ids"):
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


@in_place_of_answer("a bad prompt crashes", "refusals", "HTTP 500")
def _(path: str, body: Json) -> tuple[int, Json] | None:
    crash = path == CHAT and body.get("input_ids") == []
    return (500, {"message": "input_ids: list index out of range"}) if crash else None


@in_request("a bad prompt answered", "refusals", "was answered", rule=16)
def _(path: str, body: Json) -> Json:
    bad = body.get("input_ids") == [1, -1]
    return {**body, "input_ids": [1, 2]} if bad else body


@in_place_of_answer(
    "a refusal without a reason", "refusals", "does not name 'input_ids'"
)
def _(path: str, body: Json) -> tuple[int, Json] | None:
    bad = body.get("input_ids") == [[1, 2]]
    return (400, {"message": "Bad request"}) if bad else None


@in_response("a /generate without meta_info", "customized-info", "expected form")
def _(path: str, body: Json, response: Any) -> None:
    if path == GENERATE and isinstance(response, dict):
        del response["meta_info"]


@in_response("metadata of the last tokens", "customized-info", "for 120 output_ids")
def _(path: str, body: Json, response: Any) -> None:
    for output in outputs(path, response):
        del output["meta_info"][MIRROR_KEY][:-20]


@in_stream("metadata out of step", "customized-info", "values of the sampler")
def _(path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
    for number, event in enumerate(events):
        if path == GENERATE and number == 60:
            event["meta_info"][MIRROR_KEY].pop(0)
        yield event


@in_stream("the last chunk of /generate lost", "customized-info", "tokens arrived")
def _(path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
    for event in events:
        if path != GENERATE or not event["meta_info"]["finish_reason"]:
            yield event


@in_chunk("token_ids of null for who wants none", "opt-out", "the answer has token_ids")
def _(body: Json, choice: Json) -> None:
    choice.setdefault("token_ids", None)


@in_response("a field of stock's lost", "opt-out", "differs from the one")
def _(path: str, body: Json, response: Any) -> None:
    if path == CHAT and body.get("return_token_ids") is False:
        del response["metadata"]


@in_response("IDs in /v1/completions", "other-endpoints", "the answer has token_ids")
def _(path: str, body: Json, response: Any) -> None:
    if path == "/v1/completions":
        response["choices"][0]["token_ids"] = [1]


@in_response("a token of vLLM's lost", "vllm-api", "differ from the output_ids")
def _(path: str, body: Json, response: Any) -> None:
    for choice in vllm_choices(path, response):
        del choice["token_ids"][3], choice["logprobs"]["content"][3]


@in_stream("a chunk of vLLM's endpoint lost", "vllm-api", "streaming")
def _(path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
    for number, event in enumerate(events):
        if path != VLLM or number != 5:
            yield event


@in_response("logprobs of vLLM's out of step", "vllm-api", "the logprob of token")
def _(path: str, body: Json, response: Any) -> None:
    for choice in vllm_choices(path, response):
        content = choice["logprobs"]["content"]
        values = [entry["logprob"] for entry in content]
        for entry, value in zip(content, [*values[1:], -7.0], strict=True):
            entry["logprob"] = value


@in_response("one of vLLM's dialects lost", "vllm-api", "token of the logprobs")
def _(path: str, body: Json, response: Any) -> None:
    for choice in vllm_choices(path, response):
        for entry in choice["logprobs"]["content"]:
            del entry["token"]


@in_request("a salt ignored", "vllm-api", "cache_salt")
def _(path: str, body: Json) -> Json:
    return without(body, "cache_salt") if path == VLLM else body


@in_request("a parameter ignored", "vllm-api", "was ignored")
def _(path: str, body: Json) -> Json:
    if path != VLLM:
        return body
    params = without(body["sampling_params"], "allowed_token_ids")
    return {**body, "sampling_params": params}


@in_response("versions of vLLM's endpoint lost", "vllm-api", "weight_versions are None")
def _(path: str, body: Json, response: Any) -> None:
    for choice in vllm_choices(path, response):
        del choice["weight_versions"]


@in_response("a rendered token lost", "vllm-api", "prompt_token_ids of chat")
def _(path: str, body: Json, response: Any) -> None:
    if path == "/v1/chat/completions/render":
        del response["token_ids"][3]


@plant("two of vLLM's endpoints missing", "vllm-api", "not serve /is_paused, /sleep.")
class VllmEndpointsMissing(Defect):
    def refusal(self, path: str, body: Json) -> tuple[int, Json] | None:
        missing = path in ("/is_paused", "/sleep")
        return (404, {"detail": "Not Found"}) if missing else None
