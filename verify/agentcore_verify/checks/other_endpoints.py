"""/v1/completions and /v1/messages answer as before, without the new fields.

Both endpoints share code with the chat endpoint. Their text is equal with and without
streaming, their streams end as they should, and no answer has a field of the patches.
If not, other users of the server that a trainer runs get broken answers.
"""

from __future__ import annotations

from collections.abc import Callable

from agentcore_verify.client import Json
from agentcore_verify.invariants import assert_no_new_fields, comparable_text
from agentcore_verify.results import Failed
from agentcore_verify.scripted_model import line
from agentcore_verify.subject import Subject


def check(subject: Subject) -> str:
    completions = {"prompt": line("plain").question, "max_tokens": 32, "logprobs": 1}
    _check(subject, "/v1/completions", completions, _completion_text)
    if not subject.has_messages():
        return "/v1/completions, with and without streaming; there is no /v1/messages"
    messages = {"messages": line("plain").messages, "max_tokens": 64}
    events = _check(subject, "/v1/messages", messages, _message_text)
    if not events or events[-1].get("type") != "message_stop":
        raise Failed("/v1/messages, streaming: the last event is not message_stop.")
    return "/v1/completions and /v1/messages, with and without streaming"


def _check(
    subject: Subject, path: str, body: Json, text_of: Callable[[list[Json]], str]
) -> list[Json]:
    """Return the events of the stream; Failed on a new field or a different text."""
    with subject.asking(path):
        by_mode = subject.in_both_modes(path, body)
    for mode, answers in by_mode.items():
        assert_no_new_fields(subject, f"{path}, {mode}", answers)
    whole, streamed = map(text_of, by_mode.values())
    if not subject.loses_text(path) and comparable_text(whole) != comparable_text(
        streamed
    ):
        raise Failed(
            f"{path}: the text is {streamed!r} with streaming, but {whole!r} without."
        )
    return by_mode["streaming"]


def _completion_text(answers: list[Json]) -> str:
    return "".join(choice["text"] for answer in answers for choice in answer["choices"])


def _message_text(answers: list[Json]) -> str:
    blocks = [
        block
        for answer in answers
        for block in answer.get("content") or [answer.get("delta") or {}]
    ]
    return "".join(
        block.get(part) or "" for block in blocks for part in ("thinking", "text")
    )
