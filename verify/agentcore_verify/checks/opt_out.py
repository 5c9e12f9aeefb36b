"""`return_token_ids: false` gives the answer that an unpatched server gives.

No chunk and no response has one of the new fields, and all else is as with them, ids,
times and random names aside. If not, clients that know nothing of token IDs pay for
them, or break.
"""

from __future__ import annotations

from typing import Any

from agentcore_verify.invariants import finish
from agentcore_verify.results import Failed
from agentcore_verify.subject import Reply, Subject

PATCHES = ("token-ids",)

FIELDS = {"token_ids", "prompt_token_ids", "meta_info"}
RANDOM = {"id", "created"}

REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("emoji", {"logprobs": True}),
    ("tool", {"tools": True}),
    ("plain", {"n": 2}),
)


def check(subject: Subject) -> str:
    n_events = 0
    for question, options in REQUESTS:
        whole = subject.reference(question, **options)
        request = {"logprobs": True, "top_logprobs": 2, **options}
        without = subject.ask(question, return_token_ids=False, **request)
        streamed = subject.stream(question, return_token_ids=False, **request)
        for reply in (without, streamed):
            _assert_no_error(reply)
            n_events += len(reply.answer.events)
            if found := sorted(_keys(reply.answer.events) & FIELDS):
                raise Failed(
                    f"{reply.where} with return_token_ids=false: {', '.join(found)} in "
                    "the answer."
                )
            _assert_same_text(whole, reply)
        if _bare(whole.answer.events[0]) != _bare(without.answer.events[0]):
            raise Failed(
                f"{without.where} with return_token_ids=false: more than the token IDs "
                "is missing or other."
            )
    return f"{n_events} chunks and responses without a new field"


def _assert_no_error(reply: Reply) -> None:
    for error in reply.answer.errors:
        raise Failed(f"{reply.where}: an error event in the stream: {error['error']}")


def _assert_same_text(whole: Reply, reply: Reply) -> None:
    # Streaming, v0.5.9's parsers may leave in the text what else is a tool call.
    parsed = reply.streamed and "tools" in reply.body
    for one, other in zip(whole.completions, reply.completions, strict=True):
        said = [
            (finish(completion), "" if parsed else completion.content)
            for completion in (one, other)
        ]
        if said[0] != said[1]:
            raise Failed(
                f"{reply.where} with return_token_ids=false: choice {other.index} says "
                f"{said[1]} instead of {said[0]}."
            )


def _keys(value: object) -> set[str]:
    """All keys in a JSON value."""
    if isinstance(value, dict):
        return set(value) | {key for part in value.values() for key in _keys(part)}
    if isinstance(value, list | tuple):
        return {key for part in value for key in _keys(part)}
    return set()


def _bare(value: Any) -> Any:
    """A JSON value without what is new, random or subject to rounding."""
    if isinstance(value, dict):
        return {
            key: _bare(part)
            for key, part in value.items()
            if key not in FIELDS | RANDOM and key != "logprob"
        }
    if isinstance(value, list):
        return [_bare(part) for part in value]
    return value
