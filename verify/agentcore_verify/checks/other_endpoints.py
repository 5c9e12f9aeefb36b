"""/v1/completions and /v1/messages answer as before, without the new fields.

Both endpoints share code with the chat endpoint. Their text is equal with and without
streaming, their streams end as they should, and no answer has a field of the patches.
If not, other users of the server that a trainer runs get broken answers.
"""

from __future__ import annotations

from agentcore_verify.client import Json
from agentcore_verify.invariants import assert_no_new_fields, comparable_text
from agentcore_verify.results import Failed
from agentcore_verify.scripted_model import line
from agentcore_verify.subject import Subject


def check(subject: Subject) -> str:
    plain = line("plain")
    bodies: dict[str, Json] = {
        "/v1/completions": {"prompt": plain.question, "max_tokens": 32, "logprobs": 1}
    }
    absent = "; there is no /v1/messages"
    if subject.has_messages():
        bodies["/v1/messages"] = {"messages": plain.messages, "max_tokens": 64}
        absent = ""
    for path, body in bodies.items():
        _check(subject, path, body)
    return f"{' and '.join(bodies)}, with and without streaming{absent}"


def _check(subject: Subject, path: str, body: Json) -> None:
    with subject.asking(path):
        by_mode = subject.in_both_modes(path, body)
    for mode, answers in by_mode.items():
        assert_no_new_fields(subject, f"{path}, {mode}", answers)
    whole, streamed = map(_text, by_mode.values())
    is_same = comparable_text(whole) == comparable_text(streamed)
    if not (is_same or subject.loses_text(path)):
        raise Failed(
            f"{path}: the text is {streamed!r} with streaming, but {whole!r} without."
        )
    last = next(reversed(by_mode["streaming"]), {})
    if path == "/v1/messages" and last.get("type") != "message_stop":
        raise Failed(f"{path}, streaming: the last event is not message_stop.")


def _text(answers: list[Json]) -> str:
    """Return the text of the choices, or of the content and its deltas."""
    parts = [
        part
        for answer in answers
        for part in answer.get("choices")
        or answer.get("content")
        or [answer.get("delta") or {}]
    ]
    return "".join(
        part.get(key) or "" for part in parts for key in ("thinking", "text")
    )
