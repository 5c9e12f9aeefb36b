"""Completions, messages, responses and "token_id:N" give the trace of the chat endpoint.

With `return_token_ids: true`, `/v1/completions`, `/v1/messages` and `/v1/responses` return
the prompt's IDs, the completion's and its logprobs, with and without streaming, and they
equal those of the same prompt in chat.
`return_tokens_as_token_ids: true` names each token of the logprobs by its ID, and
`return_token_logprobs: true` repeats their numbers alone. If not, trainers that read these
places lose their samples without a message.
"""

from __future__ import annotations

from agentcore_verify.client import Json
from agentcore_verify.invariants import assert_aligned
from agentcore_verify.results import Failed
from agentcore_verify.scripted_model import line
from agentcore_verify.subject import MAX_TOKENS, Exchange, Subject

QUESTION = "emoji"
BY_ID = "return_tokens_as_token_ids"
FLAT = "return_token_logprobs"


def check(subject: Subject) -> str:
    chat = subject.reference(QUESTION, separate_reasoning=True)
    _check_completions(subject, chat)
    paths = ["/v1/completions"]
    if subject.has_messages():
        _check_messages(subject, chat)
        paths.append("/v1/messages")
    if subject.traces_responses():
        _check_responses(subject, chat)
        paths.append("/v1/responses")
    for stream in (False, True):
        _check_names(subject, chat, stream)
    return f"{len(chat.ids())} tokens by {', '.join(paths)} and token_id:N"


def _check_completions(subject: Subject, chat: Exchange) -> None:
    body = {"prompt": list(chat.prompt_ids), "max_tokens": MAX_TOKENS, "logprobs": 1}
    for where, answers in _ask(subject, "/v1/completions", body).items():
        choices = [choice for answer in answers for choice in answer["choices"]]
        traced = [
            {**choice, "token_logprobs": (choice.get("logprobs") or {}).get("tokens")}
            for choice in choices
        ]
        _assert_trace(subject, where, chat, choices, traced)


def _check_messages(subject: Subject, chat: Exchange) -> None:
    body = {"messages": line(QUESTION).messages, "max_tokens": MAX_TOKENS}
    for where, answers in _ask(subject, "/v1/messages", body).items():
        messages = [answer.get("message", answer) for answer in answers]
        _assert_trace(subject, where, chat, messages, answers)


def _check_responses(subject: Subject, chat: Exchange) -> None:
    path = "/v1/responses"
    body = {
        # From 0.5.20 on, another name is rejected here.
        "model": subject.served_model(),
        "input": line(QUESTION).messages,
        # SGLang generates two fewer.
        "max_output_tokens": MAX_TOKENS + 2,
    }
    traces = _ask(subject, path, body)
    last: Json = traces[f"{path}, streaming"][-1]["response"]
    for where, answers in {**traces, f"{path}, the last event": [last]}.items():
        first: Json = answers[0].get("response") or answers[0]
        _assert_trace(subject, where, chat, [first], answers)


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


def _ask(subject: Subject, path: str, body: Json) -> dict[str, list[Json]]:
    """Return the response and the events of a stream, by their names in messages."""
    with subject.asking(f"{path} with return_token_ids"):
        by_mode = subject.in_both_modes(path, {"return_token_ids": True, **body})
    return {f"{path}, {mode}": answers for mode, answers in by_mode.items()}


def _assert_trace(
    subject: Subject,
    where: str,
    chat: Exchange,
    prompts: list[Json],
    traced: list[Json],
) -> None:
    """Failed unless the trace is the chat's, with a logprob for each token ID.

    `prompts` may have the prompt's IDs, `traced` has the completion's IDs.
    """
    for part in traced:
        assert_aligned(where, part.get("token_ids"), part.get("token_logprobs"))
    for name, expected, parts in (
        ("prompt_token_ids", chat.prompt_ids, prompts),
        ("token_ids", chat.ids(), traced),
    ):
        got = [value for part in parts for value in part.get(name) or ()]
        message = f"{where}: {name} differ from those of the chat endpoint."
        subject.assert_ids(message, "chat", expected, where, got)
