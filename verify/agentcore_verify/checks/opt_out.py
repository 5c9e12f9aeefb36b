"""return_token_ids: false gives the answer of an unpatched server.

No chunk and no response has a new field, and everything else is as in other answers,
apart from random IDs and times. If not, a trainer's other clients get fields that they
do not expect.
"""

from __future__ import annotations

from typing import Any

from agentcore_patches.patches import registry
from agentcore_verify.invariants import (
    assert_no_error,
    assert_no_new_fields,
    finish,
)
from agentcore_verify.results import Failed
from agentcore_verify.subject import Exchange, Subject

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
            assert_no_error(reply)
            n_events += len(reply.answer.events)
            where = f"{reply.where} with return_token_ids=false"
            assert_no_new_fields(subject, where, reply.answer.events)
            if not (reply.streamed and subject.loses_text("/v1/chat/completions")):
                _assert_same_text(whole, reply)
        if _bare(whole.answer.events[0]) != _bare(without.answer.events[0]):
            raise Failed(
                f"{without.where} with return_token_ids=false: the answer differs from "
                "the one with token IDs in more than those."
            )
    return f"{n_events} chunks and responses without new fields"


def _assert_same_text(whole: Exchange, reply: Exchange) -> None:
    # With streaming, v0.5.9's parsers may leave a tool call in the text.
    parsed = reply.streamed and "tools" in reply.body
    for one, other in zip(whole.completions, reply.completions, strict=True):
        expected, found = (
            (finish(completion), "" if parsed else completion.content)
            for completion in (one, other)
        )
        if found != expected:
            raise Failed(
                f"{reply.where} with return_token_ids=false: finish_reason and content "
                f"of choice {other.index} are {found} instead of {expected}."
            )


def _bare(value: Any) -> Any:
    """Return a JSON value without new fields, random IDs, times and logprobs."""
    if isinstance(value, dict):
        left_out = registry.response_fields() | RANDOM | {"logprob"}
        return {key: _bare(part) for key, part in value.items() if key not in left_out}
    if isinstance(value, list):
        return [_bare(part) for part in value]
    return value
