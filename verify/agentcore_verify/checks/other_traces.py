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
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
BY_ID = "return_tokens_as_token_ids"
FLAT = "return_token_logprobs"


def check(subject: Subject) -> str:
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
