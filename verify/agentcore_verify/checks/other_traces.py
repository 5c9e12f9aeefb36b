"""Completions, messages, responses and "token_id:N" give the trace of the chat endpoint.

With `return_token_ids: true` `/v1/completions`, `/v1/messages` and `/v1/responses` return
the prompt's IDs, the completion's and its logprobs, with and without streaming, and they
equal those of the same prompt in chat.
`return_tokens_as_token_ids: true` names each token of the logprobs by its ID. If not,
trainers that read these places lose their samples without a message.
"""

from __future__ import annotations

from agentcore_verify import client
from agentcore_verify.client import ClientError, Json
from agentcore_verify.differences import id_difference
from agentcore_verify.results import Failed
from agentcore_verify.scripted_model import line
from agentcore_verify.subject import MAX_TOKENS, Reply, Subject

PATCHES = ("token-ids",)

QUESTION = "emoji"
BY_ID = "return_tokens_as_token_ids"


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


def _check_completions(subject: Subject, chat: Reply) -> None:
    path = "/v1/completions"
    body: Json = {
        "prompt": list(chat.prompt_ids),
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "logprobs": 1,
        "return_token_ids": True,
    }
    whole, events = _ask(subject, path, body, done=True)
    for mode, answers in (("non-streaming", [whole]), ("streaming", events)):
        prompt: list[int] = []
        ids: list[int] = []
        for choice in (choice for answer in answers for choice in answer["choices"]):
            new = choice.get("token_ids") or []
            tokens = (choice.get("logprobs") or {}).get("tokens") or []
            _assert_in_step(f"{path}, {mode}", len(new), len(tokens))
            prompt += choice.get("prompt_token_ids") or []
            ids += new
        _assert_ids(subject, f"{path}, {mode}", chat, prompt, ids)


def _check_messages(subject: Subject, chat: Reply) -> None:
    path = "/v1/messages"
    body: Json = {
        "messages": line(QUESTION).messages,
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "return_token_ids": True,
    }
    whole, events = _ask(subject, path, body, done=False)
    for mode, answers in (("non-streaming", [whole]), ("streaming", events)):
        prompt: list[int] = []
        ids: list[int] = []
        for answer in answers:
            new = answer.get("token_ids") or []
            logprobs = answer.get("token_logprobs") or []
            _assert_in_step(f"{path}, {mode}", len(new), len(logprobs))
            prompt += answer.get("message", answer).get("prompt_token_ids") or []
            ids += new
        _assert_ids(subject, f"{path}, {mode}", chat, prompt, ids)


def _check_responses(subject: Subject, chat: Reply) -> None:
    path = "/v1/responses"
    body: Json = {
        # From 0.5.20 on another name is refused here.
        "model": subject.served_model(),
        "input": line(QUESTION).messages,
        # SGLang generates two fewer.
        "max_output_tokens": MAX_TOKENS + 2,
        "temperature": 0,
        "return_token_ids": True,
    }
    whole, events = _ask(subject, path, body, done=False)
    last: Json = events[-1]["response"]
    for where, answers in (
        (f"{path}, non-streaming", [whole]),
        (f"{path}, streaming", events),
        (f"{path}, the last event", [last]),
    ):
        ids: list[int] = []
        for answer in answers:
            new = answer.get("token_ids") or []
            logprobs = answer.get("token_logprobs") or []
            _assert_in_step(where, len(new), len(logprobs))
            ids += new
        first: Json = answers[0].get("response") or answers[0]
        prompt = first.get("prompt_token_ids") or []
        _assert_ids(subject, where, chat, prompt, ids)


def _check_names(subject: Subject, chat: Reply, stream: bool) -> None:
    reply = subject.ask(QUESTION, stream=stream, logprobs=True, **{BY_ID: True})
    entries = reply.completions[0].logprobs or ()
    expected = [f"token_id:{value}" for value in chat.ids()]
    for position, (entry, name) in enumerate(zip(entries, expected, strict=False)):
        if entry["token"] != name:
            raise Failed(
                f"{reply.where} with {BY_ID}: the token of the logprob at position "
                f"{position} is {entry['token']!r}, not {name!r}."
            )
    _assert_in_step(f"{reply.where} with {BY_ID}", len(expected), len(entries))


def _ask(
    subject: Subject, path: str, body: Json, *, done: bool
) -> tuple[Json, list[Json]]:
    """The response without streaming and the events with it."""
    url, body = f"{subject.base_url}{path}", {"model": subject.model, **body}
    try:
        response: Json = client.post_json(url, body, api_key=subject.api_key)
        events = list(client.post_stream(url, body, api_key=subject.api_key, done=done))
    except ClientError as error:
        raise Failed(f"{path} with return_token_ids: {error}") from error
    return response, events


def _assert_in_step(where: str, n_ids: int, n_logprobs: int) -> None:
    if n_ids != n_logprobs:
        raise Failed(f"{where}: {n_logprobs} logprobs for {n_ids} token IDs.")


def _assert_ids(
    subject: Subject, where: str, chat: Reply, prompt: list[int], ids: list[int]
) -> None:
    for name, expected, got in (
        ("prompt_token_ids", chat.prompt_ids, prompt),
        ("token_ids", chat.ids(), ids),
    ):
        if tuple(got) != expected:
            raise Failed(
                f"{where}: {name} differ from those of the chat endpoint.",
                difference=id_difference(subject, "chat", expected, where, got),
            )
