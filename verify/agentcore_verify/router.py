"""Find the request fields that a router in front of the server drops.

Routers read a request into a structure of their own and write it again: a field that they
do not know never reaches the server, and the answer comes with status 200 all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentcore_verify.client import Answer, ClientError, HttpError
from agentcore_verify.results import Failed, Skipped
from agentcore_verify.subject import Subject

NOT_DECODED = (
    "Token IDs were not compared with texts: the router does not pass on /detokenize."
)

NOT_CHECKED = Skipped(
    "Not checked: a router in front of the server does not pass on this check's requests.",
    advice="Give the URL of the SGLang server itself as --base-url.",
)


@dataclass(frozen=True)
class Field:
    """A request field, the consequence of dropping it, and the visible effect."""

    name: str
    value: Any
    meaning: str
    has_effect: Callable[[Answer], bool]
    beside: Mapping[str, Any] = field(default_factory=dict)
    """Other fields that the request needs."""


def _choice(answer: Answer) -> dict[str, Any]:
    return answer.completions[0].raw


FIELDS = (
    Field(
        "input_ids",
        [5, 6, 7],
        "a token-in request is answered as the text of its placeholder messages, with "
        "status 200: compare prompt_token_ids with what was sent, or use /generate",
        lambda answer: answer.prompt_token_ids == (5, 6, 7),
    ),
    Field(
        "return_token_ids",
        False,
        "false does not switch the IDs off, and true does not add the prompt's to each "
        "choice",
        lambda answer: answer.prompt_token_ids is None,
    ),
    Field(
        "return_prompt_token_ids",
        True,
        "choices have no prompt_token_ids; the response has them",
        lambda answer: "prompt_token_ids" in _choice(answer),
    ),
    Field(
        "return_meta_info",
        True,
        "choices have no meta_info",
        lambda answer: "meta_info" in _choice(answer),
    ),
    Field(
        "return_tokens_as_token_ids",
        True,
        "the tokens of logprobs are text, not token_id:N",
        lambda answer: all(
            entry["token"].startswith("token_id:")
            for entry in answer.completions[0].logprobs or ()
        ),
    ),
    Field(
        "required_prefix_token_ids",
        [5, 6, 7],
        "the chat template alone renders the earlier turns, with status 200: look for "
        "metadata.prefix, or let the server remember them with "
        "AGENTCORE_PREFIX_CACHE_MB",
        lambda answer: any(
            "prefix" in (event.get("metadata") or {}) for event in answer.events
        ),
        {
            "messages": [
                {"role": "user", "content": "Say hello."},
                {"role": "assistant", "content": "Hello."},
                {"role": "user", "content": "Say it again."},
            ]
        },
    ),
)


def is_router(subject: Subject) -> bool:
    """True if the server at this URL lacks an endpoint that every SGLang has."""
    try:
        subject.post("/detokenize", {"model": subject.model, "tokens": [5]}).close()
    except HttpError as error:
        return error.status == 404
    except ClientError:
        pass
    return False


def dropped_fields(subject: Subject) -> list[Field]:
    """Return the fields without an effect; empty if the server returns no token IDs."""
    options = {"logprobs": True, "max_tokens": 2}
    try:
        if subject.ask("plain", **options).answer.prompt_token_ids is None:
            return []
    except Failed:
        return []
    return [named for named in FIELDS if _is_dropped(subject, named, options)]


def _is_dropped(subject: Subject, named: Field, options: Mapping[str, Any]) -> bool:
    """True if a field has no effect; a rejected field was read."""
    asked = {**options, **named.beside, named.name: named.value}
    try:
        return not named.has_effect(subject.ask("plain", **asked).answer)
    except Failed:
        return False
