"""The server under verification, as the checks use it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import requests

from agentcore_patches.errors import ServerError
from agentcore_patches.patches import registry
from agentcore_patches.patches.releases import is_between

from . import client, differences, profiles
from .client import Answer, ClientError, Completion, HttpError, Json, OnEvent
from .contract import Ledger
from .profiles import AGENTCORE, Profile
from .results import Difference, Failed, Inconclusive, NotExercised, Skipped
from .scripted_model import TOOLS, line

MAX_TOKENS = 512
FEWER_TOKENS = 128
"""On a server that may have a large model."""

NO_IDS = "No answer has token IDs, whichever way they are asked for."

NO_STREAMS = "The server's streams have no token IDs."

LOGPROBS: dict[str, Any] = {"logprobs": True, "top_logprobs": 2}

REPEATS = 3
"""Further requests that tell a wrong answer from one that varies."""

ENDLESS: dict[str, Any] = {"ignore_eos": True, "max_tokens": 2048}
"""An answer so long that an abort reaches the engine before its end."""

INTERRUPTION_ATTEMPTS = 3
"""Number of attempts: on a busy machine, answers may finish before an interruption."""

VARIES = "The engine is not deterministic, so answers cannot be compared."
NOT_DETERMINISTIC = f"{VARIES} Launch it with `-- --enable-deterministic-inference`."


Decoder: TypeAlias = Callable[[Sequence[Sequence[int]], bool], list[str]]
"""Decodes sequences of token IDs; the flag tells whether special tokens are kept."""


def mode_of(body: Json) -> str:
    return "streaming" if body.get("stream") else "non-streaming"


@dataclass(frozen=True)
class Exchange:
    """A request and its answer; `where` names the request in messages."""

    where: str
    body: Json
    answer: Answer
    profile: Profile = AGENTCORE

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def mode(self) -> str:
        return mode_of(self.body)

    @property
    def completions(self) -> tuple[Completion, ...]:
        return self.answer.completions

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The prompt_token_ids; Failed if there are none, Skipped if there never are."""
        if not self.profile.prompt:
            raise Skipped("Answers have no prompt IDs.")
        if self.answer.prompt_token_ids is None:
            raise Failed(f"{self.where}: the answer has no prompt_token_ids.")
        return self.answer.prompt_token_ids

    def ids(self, choice: int = 0) -> tuple[int, ...]:
        """The token_ids of a choice; Failed if there are none."""
        for completion in self.completions:
            if completion.index == choice and completion.token_ids is not None:
                return completion.token_ids
        raise Failed(f"{self.where}: choice {choice} has no token_ids.")


@dataclass(eq=False)
class Subject:
    """A server that gets the script's questions, by the names of its lines.

    By default requests use greedy decoding and `separate_reasoning: false`. No answer,
    or one that breaks the protocol, raises Failed.

    Attributes:
        launched: True if this command launched it, with the mirroring sampler.
        is_sglang: False for another engine, and for one that does not show what it is.
        is_patched: True if the server is SGLang with these patches: stock has no IDs
            unasked.
        is_routed: True if a router hides endpoints that the server has.
        noise: the largest logprob difference between two identical requests.
    """

    base_url: str
    model: str = "default"
    api_key: str | None = None
    python: Path | None = None
    launched: bool = False
    profile: Profile = AGENTCORE
    expect_logprobs: str | None = None
    sends_bad_ids: bool = True
    needs_logprobs: bool = True
    is_sglang: bool = True
    is_patched: bool = field(init=False)
    is_routed: bool = False
    noise: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)
    _references: dict[str, Exchange] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.is_patched = self.profile is AGENTCORE

    @cached_property
    def info(self) -> Json:
        """The JSON of /server_info; empty if there is none."""
        return self.json_at("/server_info")

    def json_at(self, path: str) -> Json:
        """Return the JSON object at a path; empty if there is none."""
        try:
            response = self.get(path)
            found = response.json()
        except (requests.RequestException, ValueError):
            return {}
        is_answer = response.status_code == 200 and isinstance(found, dict)
        return found if is_answer else {}

    def rule(self, number: int) -> AbstractContextManager[None]:
        """Judge a rule by a part of a check, as `Ledger.rule` does."""
        return self.ledger.rule(number)

    @cached_property
    def refused(self) -> frozenset[str]:
        """The fields for logprobs that the server refuses, or no level needs."""
        fields = dict(LOGPROBS) if self.needs_logprobs else {}
        while fields and not self.is_patched and self._refuses(fields):
            fields.popitem()
        return frozenset(LOGPROBS.keys() - fields.keys())

    def _refuses(self, fields: Json) -> bool:
        try:
            url = f"{self.base_url}{client.CHAT}"
            client.post_json(url, self._hello(**fields), api_key=self.api_key)
        except ClientError as error:
            return client.is_refusal(error)
        return False

    def _hello(self, **fields: Any) -> Json:
        messages = [{"role": "user", "content": "Say hello."}]
        return {"model": self.model, "messages": messages, "max_tokens": 8, **fields}

    def require_logprobs(self, field: str = "logprobs") -> None:
        if field in self.refused:
            raise Skipped(f"The server refuses {field}.")

    @property
    def is_float32(self) -> bool:
        vllm = "dtype=torch.float32" in str(self.info.get("vllm_config"))
        return vllm or self.info.get("dtype") == "float32"

    @cached_property
    def decoder(self) -> Decoder | None:
        """Decodes token IDs in the form that /detokenize takes; None if nothing here can."""
        for decoder in (self._decode_by_sglang, self._decode_by_vllm):
            try:
                decoder([[5]], True)
            except (ClientError, ValueError):
                continue
            return decoder
        if self.is_patched and not self.is_routed:
            raise Failed("/detokenize does not decode token IDs.")
        return None

    def _decode_by_sglang(
        self, sequences: Sequence[Sequence[int]], special: bool
    ) -> list[str]:
        tokens = [list(ids) for ids in sequences]
        return list(self._detokenize("text", tokens, skip_special_tokens=not special))

    def _decode_by_vllm(
        self, sequences: Sequence[Sequence[int]], special: bool
    ) -> list[str]:
        # It keeps special tokens.
        return [str(self._detokenize("prompt", list(ids))) for ids in sequences]

    def _detokenize(self, key: str, tokens: list[Any], **more: Any) -> Any:
        body = {"model": self.model, "tokens": tokens, **more}
        with self.post("/detokenize", body) as response:
            found = profiles.at(response.json(), key)
        if found is None:
            raise client.BrokenAnswer(f"/detokenize: the answer has no {key}.")
        return found

    @cached_property
    def can_decode(self) -> bool:
        return self.decoder is not None

    def require_parser(self, option: str) -> None:
        """Raise NotExercised or Skipped if the server lacks the parser of `option`."""
        name = option.removeprefix("--").replace("-", "_")
        has_one = self.info.get(name) or name not in self.info
        if has_one and f"{name}=''" not in str(self.info.get("vllm_config")):
            return
        message = f"The server runs without {option}."
        if self.launched:
            advice = f"If the model needs one, add {option} NAME."
            raise NotExercised(message, advice=advice)
        raise Skipped(message, advice=f"Launch the server with {option} NAME.")

    def has_messages(self) -> bool:
        """True if the server has /v1/messages; yes if its release is unknown."""
        release = self._release()
        serving = "srt/entrypoints/anthropic/serving.py"
        return release is None or registry.is_file_of(release, serving)

    def traces_responses(self) -> bool:
        """True if the server has /v1/responses with token IDs.

        SGLang serves without the endpoint where it cannot load what gpt-oss needs.
        """
        release = self._release()
        if release is not None and is_between(release, "", "0.5.13"):
            return False
        body = {"model": self.served_model(), "input": "-", "max_output_tokens": 4}
        try:
            self.post("/v1/responses", body).close()
        except ClientError:
            return False
        return True

    def answer_with_ids(
        self, profile: Profile, *, may_refuse: bool = True
    ) -> Json | None:
        """Return a chat answer if it has token IDs; ServerError if there is no answer.

        `may_refuse`: return None if such a request is refused.
        """
        body = self._hello(**profile.fields(stream=False))
        try:
            answer = self.post(client.CHAT, body).json()
        except (ClientError, ValueError) as error:
            if may_refuse and client.is_refusal(error):
                return None
            raise ServerError(
                f"The server at {self.base_url} does not answer a chat request: {error}"
            ) from error
        choice = profiles.at(answer, "choices.0")
        has_ids = any(type(one) is int for one in profile.tokens_of(choice) or ())
        return answer if has_ids else None

    def served_model(self) -> str:
        return str(self.listed_model().get("id", self.model))

    def longest_prompt(self) -> int | None:
        """Return the number of tokens that the server's context has; None if unknown."""
        found = self.listed_model().get("max_model_len")
        return found if type(found) is int else None

    def listed_model(self) -> Json:
        """Return the model's entry in /v1/models; the first one if none has its name."""
        listed = profiles.at(self.json_at("/v1/models"), "data")
        models = listed if isinstance(listed, list) else []
        found = [one for one in models if isinstance(one, dict)]
        named = [one for one in found if one.get("id") == self.model]
        return next(iter(named + found), {})

    def metadata(self) -> frozenset[str]:
        """SGLang's own fields in the `metadata` of non-streaming responses."""
        release = self._release()
        has_spans = release is None or is_between(release, "0.5.19", "")
        return frozenset(
            {"weight_version"} | ({"weight_versions"} if has_spans else set())
        )

    def loses_text(self, path: str) -> bool:
        """True if this SGLang itself loses text in streams of a path.

        From 0.5.10 on the engine gives only the new text under --stream-output, which
        chat takes for all of it in 0.5.10, and completions up to 0.5.16.
        """
        last = "0.5.16" if path == "/v1/completions" else "0.5.10"
        release = self._release()
        return (
            bool(self.info.get("incremental_streaming_output"))
            and release is not None
            and is_between(release, "0.5.10", last)
        )

    def _release(self) -> str | None:
        """Return the numbers of the server's version, without a build's suffix."""
        found = re.match(r"\d+(\.\d+)+", str(self.info.get("version")))
        return found and found[0]

    @staticmethod
    @contextmanager
    def asking(where: str) -> Iterator[None]:
        """Turn a failed request into Failed; `where` names the request in messages."""
        try:
            yield
        except ClientError as error:
            raise Failed(f"{where}: {error}") from error

    @contextmanager
    def unless_refused(self, what: str) -> Iterator[None]:
        """Turn the refusal of a request into Skipped; patched SGLang must not refuse."""
        try:
            yield
        except Failed as error:
            if self.is_patched or not client.is_refusal(error.__cause__):
                raise
            raise Skipped(f"The server refuses {what}.") from error

    def body(self, question: str, *, tools: bool = False, **more: Any) -> Json:
        body: Json = {
            "model": self.model,
            "messages": line(question).messages,
            "temperature": 0,
            "max_tokens": MAX_TOKENS if self.is_patched else FEWER_TOKENS,
        }
        if self.is_patched:
            body["separate_reasoning"] = False
        if more.keys() & LOGPROBS.keys():
            more = {name: more[name] for name in more if name not in self.refused}
        if tools:
            body["tools"] = list(TOOLS)
        if more.get("stream"):
            body["stream_options"] = {"include_usage": True}
        if not self.profile.tokens:
            raise Skipped(NO_IDS)
        if more.get("stream") and not self.profile.streams:
            raise Skipped(NO_STREAMS)
        asking = self.profile.fields(stream=bool(more.get("stream")))
        return {**body, **asking, **more}

    def ask(self, question: str, **more: Any) -> Exchange:
        body = self.body(question, **more)
        return self.send(body, f"{mode_of(body)} '{question}'")

    def send(self, body: Json, where: str, on_event: OnEvent | None = None) -> Exchange:
        """The answer to a chat completion request; Failed if there is none."""
        with self.asking(where):
            answer = client.ask(
                self.base_url,
                api_key=self.api_key,
                on_event=on_event,
                profile=self.profile,
                **body,
            )
        return Exchange(where, body, answer, self.profile)

    def reference(self, question: str, **more: Any) -> Exchange:
        """Return the answer with logprobs; ask twice first, or raise Inconclusive."""
        more = {**LOGPROBS, **more}
        key = repr(sorted(self.body(question, **more).items()))
        if key not in self._references:
            first = self.ask(question, **more)
            again = self.ask(question, **more)
            self._note_noise(first, again)
            self._assert_repeated(first, again)
            self._references[key] = first
        return self._references[key]

    def _assert_repeated(self, first: Exchange, again: Exchange) -> None:
        if _comparable(first.answer) != _comparable(again.answer):
            raise Inconclusive(
                f"{first.where}: two identical requests got different answers.",
                advice=NOT_DETERMINISTIC if self.is_sglang else VARIES,
                difference=self._difference(first, again),
            )

    def assert_still(self, known: Exchange) -> None:
        """Raise Inconclusive if the same request gets another answer by now."""
        for _ in range(REPEATS):
            self._assert_repeated(known, self.send(known.body, known.where))

    def assert_ids(
        self,
        message: str,
        left: str,
        one: Sequence[int],
        right: str,
        other: Sequence[int],
        *,
        known: Exchange | None = None,
        advice: str = "",
    ) -> None:
        """Raise Failed with this message unless both sequences of IDs are equal.

        `left` and `right` name them in the report. If `known` is an answer with the first,
        raise Inconclusive if it is not what its request gets by now.
        """
        if [*one] == [*other]:
            return
        if known:
            self.assert_still(known)
        difference = self.id_difference(left, one, right, other)
        raise Failed(message, advice=advice, difference=difference)

    def stream(self, question: str, **more: Any) -> Exchange:
        return self.ask(question, stream=True, **more)

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        return self.decode_all([ids], special=special)[0]

    def decode_all(
        self, sequences: Sequence[Sequence[int]], *, special: bool = False
    ) -> list[str]:
        """Decode each sequence of token IDs, or raise Skipped or Failed.

        This process then needs no tokenizer. No patch changes that endpoint.
        """
        if self.decoder is None:
            raise Skipped("Nothing here decodes token IDs.")
        with self.asking("/detokenize"):
            return self.decoder(sequences, special)

    def id_difference(
        self, left: str, one: Sequence[int], right: str, other: Sequence[int]
    ) -> Difference:
        """Two sequences of token IDs around their first difference, decoded if possible."""

        def decode(ids: Sequence[int]) -> list[str]:
            return self.decode_all([[value] for value in ids], special=True)

        return differences.id_difference(
            left, one, right, other, decode if self.can_decode else None
        )

    def post_json(self, path: str, body: Json, where: str = "") -> Any:
        """Return the JSON answer of an endpoint, not streamed; Failed if there is none."""
        with self.asking(where or path):
            url = f"{self.base_url}{path}"
            return client.post_json(url, body, api_key=self.api_key)

    def generate(self, **body: Any) -> Any:
        return self.post_json("/generate", body)

    def post_stream(
        self, path: str, body: Json, *, done: bool = True
    ) -> Iterator[Json]:
        url = f"{self.base_url}{path}"
        return client.post_stream(url, body, api_key=self.api_key, done=done)

    def in_both_modes(self, path: str, body: Json) -> dict[str, list[Json]]:
        body = {"model": self.model, "temperature": 0, **body}
        # The streams of the other endpoints may end without [DONE].
        events = self.post_stream(path, body, done=path == "/v1/completions")
        return {"non-streaming": [self.post_json(path, body)], "streaming": [*events]}

    def assert_refused(
        self, body: Json, where: str, *words: str, path: str = client.CHAT
    ) -> None:
        """Raise Failed unless a request gets an HTTP 400 with these words."""
        with self.asking(where):
            try:
                self.post(path, body).close()
            except HttpError as error:
                if error.status != 400:
                    raise Failed(
                        f"{where}: expected HTTP 400, but got {error}"
                    ) from error
                for word in words:
                    if word not in error.body:
                        raise Failed(
                            f"{where}: the HTTP 400 does not name {word!r}: {error.body}"
                        ) from error
                return
        raise Failed(f"{where}: expected HTTP 400, but the request was answered.")

    def post(self, path: str, body: Json) -> requests.Response:
        return client.post(f"{self.base_url}{path}", body, api_key=self.api_key)

    def get(self, path: str) -> requests.Response:
        """The response to a GET request.

        Up to 0.5.9 an unpatched server that was asked no prompt yet gives none to some.
        """
        url = f"{self.base_url}{path}"
        return client.send("GET", url, api_key=self.api_key, timeout=30)

    def _difference(self, first: Exchange, again: Exchange) -> Difference | None:
        left, right = "first run", "second run"
        for a, b in zip(first.completions, again.completions, strict=False):
            if a.token_ids is not None and b.token_ids is not None:
                if a.token_ids != b.token_ids:
                    return self.id_difference(left, a.token_ids, right, b.token_ids)
            elif a.content != b.content:
                return differences.text_difference(left, a.content, right, b.content)
        return None

    def _note_noise(self, one: Exchange, other: Exchange) -> None:
        for left, right in zip(one.completions, other.completions, strict=False):
            if left.token_ids == right.token_ids:
                distance = differences.logprob_distance(
                    left.logprobs or (), right.logprobs or ()
                )
                self.noise = max(self.noise, distance)


def _comparable(answer: Answer) -> list[object]:
    """Return the parts of an answer that a second one must repeat; no random IDs."""
    return [
        answer.prompt_token_ids,
        *(
            (
                completion.index,
                completion.token_ids,
                completion.content,
                completion.reasoning_content,
                [(call.name, call.arguments) for call in completion.tool_calls],
                completion.finish_reason,
            )
            for completion in answer.completions
        ),
    ]
