"""Checks of requests that ask for no token IDs, or at other endpoints than chat's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentcore_patches.patches import registry
from agentcore_verify.checks.registry import check
from agentcore_verify.client import Json
from agentcore_verify.invariants import (
    assert_aligned,
    assert_no_error,
    assert_no_new_fields,
    comparable_text,
    finish,
)
from agentcore_verify.results import Failed
from agentcore_verify.scripted_model import line
from agentcore_verify.subject import MAX_TOKENS, Exchange, Subject

RANDOM = {"id", "created"}

REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("emoji", {"logprobs": True}),
    ("tool", {"tools": True}),
    ("plain", {"n": 2}),
)

QUESTION = "emoji"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
BY_ID = "return_tokens_as_token_ids"
FLAT = "return_token_logprobs"


@check()
def opt_out(subject: Subject) -> str:
    """return_token_ids: false gives the answer of an unpatched server.

    No chunk and no response has a new field, and everything else is as in other
    answers, apart from random IDs and times. If not, a trainer's other clients get
    fields that they do not expect.
    """
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


@check()
def other_endpoints(subject: Subject) -> str:
    """/v1/completions and /v1/messages answer as before, without the new fields.

    Both endpoints share code with the chat endpoint. Their text is equal with and
    without streaming, their streams end as they should, and no answer has a field of
    the patches. If not, other users of the server that a trainer runs get broken
    answers.
    """
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


@check()
def other_traces(subject: Subject) -> str:
    """Completions, messages, responses and "token_id:N" give the trace of the chat endpoint.

    With `return_token_ids: true`, `/v1/completions`, `/v1/messages` and `/v1/responses`
    return the prompt's IDs, the completion's and its logprobs, with and without
    streaming, and they equal those of the same prompt in chat.
    `return_tokens_as_token_ids: true` names each token of the logprobs by its ID, and
    `return_token_logprobs: true` repeats their numbers alone. If not, trainers that
    read these places lose their samples without a message.
    """
    chat = subject.reference(QUESTION, separate_reasoning=True)
    messages = line(QUESTION).messages
    prompt = list(chat.prompt_ids)
    bodies: dict[str, Json] = {
        COMPLETIONS: {"prompt": prompt, "max_tokens": MAX_TOKENS, "logprobs": 1}
    }
    if subject.has_messages():
        bodies["/v1/messages"] = {"messages": messages, "max_tokens": MAX_TOKENS}
    if subject.traces_responses():
        bodies[RESPONSES] = {
            # From 0.5.20 on, another name is rejected here.
            "model": subject.served_model(),
            "input": messages,
            # SGLang generates two fewer.
            "max_output_tokens": MAX_TOKENS + 2,
        }
    for path, body in bodies.items():
        with subject.asking(f"{path} with return_token_ids"):
            by_mode = subject.in_both_modes(path, {"return_token_ids": True, **body})
        if path == RESPONSES:
            by_mode["the last event"] = [by_mode["streaming"][-1]["response"]]
        for mode, answers in by_mode.items():
            if path == COMPLETIONS:
                answers = [choice for answer in answers for choice in answer["choices"]]
            _assert_trace(subject, f"{path}, {mode}", chat, answers)
    for stream in (False, True):
        _check_names(subject, chat, stream)
    return f"{len(chat.ids())} tokens by {', '.join(bodies)} and token_id:N"


def _assert_trace(
    subject: Subject, where: str, chat: Exchange, answers: list[Json]
) -> None:
    """Failed unless the trace is the chat's, with a logprob for each token ID."""
    for part in answers:
        logprobs = (part.get("logprobs") or {}).get("tokens")
        logprobs = part.get("token_logprobs", logprobs)
        assert_aligned(where, part.get("token_ids"), logprobs)
    prompts = [one.get("message") or one.get("response") or one for one in answers]
    if where.startswith(RESPONSES):
        prompts = prompts[:1]  # Each event with a response repeats them.
    for name, expected, parts in (
        ("prompt_token_ids", chat.prompt_ids, prompts),
        ("token_ids", chat.ids(), answers),
    ):
        got = [value for part in parts for value in part.get(name) or ()]
        message = f"{where}: {name} differ from those of the chat endpoint."
        subject.assert_ids(message, "chat", expected, where, got)


def _check_names(subject: Subject, chat: Exchange, stream: bool) -> None:
    flags = {BY_ID: True, FLAT: True}
    reply = subject.ask(QUESTION, stream=stream, logprobs=True, **flags)
    entries = reply.completions[0].logprobs or ()
    expected = [f"token_id:{value}" for value in chat.ids()]
    for position, (entry, name) in enumerate(zip(entries, expected, strict=False)):
        if entry["token"] != name:
            raise Failed(
                f"{reply.where} with {BY_ID}: the token of the logprob at position "
                f"{position} is {entry['token']!r}, not {name!r}."
            )
    assert_aligned(f"{reply.where} with {BY_ID}", chat.ids(), entries)
    flat = [
        value
        for piece in reply.completions[0].pieces
        for value in piece.raw.get("token_logprobs", ())
    ]
    if flat != [entry["logprob"] for entry in entries]:
        raise Failed(f"{reply.where} with {FLAT}: token_logprobs are not the logprobs.")
