"""The names of fields: how to ask for token IDs, and where answers and records have them.

A path leads from an answer, or from one of its choices, to a value. A number in it is the
position in a list; any other key is looked up in each object of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

TOKEN_ID = "token_id:"
"""Prefix of the ID in a logprob's token, if the request asked for IDs there."""

PROMPT = "prompt_token_ids"
ENGINE_LOGPROBS = "meta_info.output_token_logprobs"
"""SGLang's own rows of logprob, ID and text."""

STOPS = ("matched_stop", "stop_reason")
"""The stop string or stop token of a choice: SGLang's name, vLLM's."""

REASONING = ("reasoning_content", "reasoning")

RECORDED_IDS = (
    *("token_ids", "response_token_ids"),
    "provider_specific_fields.token_ids",  # LiteLLM's
)
"""Paths in a choice at which recorders keep the IDs of its tokens."""


@dataclass(frozen=True)
class Profile:
    """The fields by which a kind of server is asked for token IDs, and answers.

    Attributes:
        name: its name for `--profile`.
        ask: the fields that ask for IDs.
        ask_whole: further ones, which streams refuse.
        prompt: the path of the prompt's IDs in an answer; empty if it never has them.
        tokens: paths of the IDs in a choice.
        streams: False if streams have no IDs.
        has_stop_tokens: True if `stop_token_ids` end an answer.
        scores: the path at which a prompt of IDs gets its logprobs; empty if none is known.
    """

    name: str
    ask: Mapping[str, Any] = field(default_factory=dict)
    ask_whole: Mapping[str, Any] = field(default_factory=dict)
    prompt: str = PROMPT
    tokens: tuple[str, ...] = ("token_ids",)
    streams: bool = True
    has_stop_tokens: bool = True
    scores: str = "/generate"

    @property
    def modes(self) -> dict[str, bool]:
        """The modes in which answers have IDs, with the value of `stream`."""
        whole = {"non-streaming": False}
        return {**whole, "streaming": True} if self.streams else whole

    @property
    def neutral(self) -> Json:
        """Sampling parameters that a model's folder may set otherwise."""
        return {"top_k": -1, "repetition_penalty": 1.0} if self.scores else {}

    def fields(self, *, stream: bool) -> Json:
        """The fields of a request that ask for IDs."""
        return {**self.ask, **({} if stream else self.ask_whole)}

    def prompt_of(self, answer: Json) -> tuple[Any, ...] | None:
        # LiteLLM moves them to the choice in streams.
        paths = (self.prompt, f"choices.0.{PROMPT}")
        found = first_at(answer, paths) if self.prompt else None
        return None if found is None else tuple(found)

    def tokens_of(self, choice: Json) -> tuple[Any, ...] | None:
        values = first_at(choice, self.tokens)
        return None if values is None else tuple(map(as_id, values))


AGENTCORE = Profile("agentcore")

PROFILES = (
    AGENTCORE,
    Profile(
        "vllm",
        {
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            # Its /detokenize keeps special tokens, so the text must, too.
            "skip_special_tokens": False,
        },
        scores="/v1/completions",
    ),
    Profile(
        "sglang",
        ask_whole={
            "return_token_ids": True,
            "return_prompt_token_ids": True,
            "return_meta_info": True,
        },
        prompt=f"choices.0.{PROMPT}",
        tokens=("response_token_ids", "token_ids", ENGINE_LOGPROBS),
        streams=False,
    ),
    Profile(
        "token-names",
        {
            "logprobs": True,
            "return_tokens_as_token_ids": True,
            # For the prompt's: LiteLLM keeps them in streams only with this.
            "return_token_ids": True,
        },
        prompt="",
        tokens=("logprobs.content.token",),
        has_stop_tokens=False,
        scores="",
    ),
)
"""All profiles. A server that nobody named is asked by each in this order."""


def named(name: str) -> Profile:
    return next(profile for profile in PROFILES if profile.name == name)


def at(value: Any, path: str) -> Any:
    """Return the value at a path; None if something on the way is missing or null."""
    for key in path.split("."):
        if isinstance(value, list):
            if key.isdecimal():
                value = value[int(key)] if int(key) < len(value) else None
            else:
                value = [at(one, key) for one in value]
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def first_at(value: Any, paths: tuple[str, ...]) -> Any:
    """Return the first value that is not null."""
    return next((one for path in paths if (one := at(value, path)) is not None), None)


def as_id(value: Any) -> Any:
    """Return the ID in a `token_id:N` or in a row of SGLang's; else the value."""
    if isinstance(value, list) and len(value) > 1:
        return value[1]
    if isinstance(value, str) and value.startswith(TOKEN_ID):
        number = value.removeprefix(TOKEN_ID)
        return int(number) if number.isdecimal() else value
    return value
