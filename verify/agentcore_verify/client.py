"""A client for SGLang: sends requests, reads JSON and server-sent events (SSE)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import requests

from .audit.readers.fields import BadRecord, Record, streamed_calls
from .audit.turns import Call
from .profiles import AGENTCORE, REASONING, Profile, first_at
from .profiles import Json as Json

CHAT = "/v1/chat/completions"

OnEvent = Callable[[Json], None]
"""Called with each event of a stream as soon as it arrives."""

TIMEOUT = 300.0
"""Seconds without a byte after which a request times out."""


CERTIFICATES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Variables that name a file with the CA certificates to trust."""


class ClientError(Exception):
    """There was no answer, an error, or a malformed answer."""


class NoAnswer(ClientError):
    """The connection failed or timed out before the answer started."""


class HttpError(ClientError):
    """The server answered with a status other than 200."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body}")
        self.status = status
        self.body = body


def is_refusal(error: object) -> bool:
    """True if the server does not take such a request; a missing key is none."""
    if not isinstance(error, HttpError) or error.status in (401, 403):
        return False
    return 400 <= error.status < 500 or error.status == 501


class BrokenAnswer(ClientError):
    """A stream that was cut off, or a response or an event that cannot be read."""


@dataclass(frozen=True)
class Piece:
    """One choice of one chunk, or of a non-streaming response.

    `position` is that of the chunk in the stream, from 0; `token_ids` and `logprobs` are
    None if the chunk has no such field; `raw` is the choice as it was received.
    """

    position: int
    token_ids: tuple[int, ...] | None
    logprobs: tuple[Json, ...] | None
    content: str
    reasoning_content: str
    tool_calls: tuple[Json, ...]
    finish_reason: str | None
    raw: Json


@dataclass(frozen=True)
class Completion:
    """One choice, joined from its pieces.

    `token_ids` and `logprobs` are those of all pieces, None if no piece has any.
    """

    index: int
    pieces: tuple[Piece, ...]
    token_ids: tuple[int, ...] | None
    logprobs: tuple[Json, ...] | None
    content: str
    reasoning_content: str
    tool_calls: tuple[Call, ...]
    finish_reason: str | None

    @property
    def raw(self) -> Json:
        """The last piece as it was received; without streaming, the whole choice."""
        return self.pieces[-1].raw


@dataclass(frozen=True)
class Answer:
    """A chat completion, streamed or not.

    `events` are the events of the stream as they were received, or the one response;
    `prompt_positions` are the positions of those with `prompt_token_ids`; `errors` are
    the error events; `completions` are sorted by index.
    """

    events: tuple[Json, ...]
    completions: tuple[Completion, ...]
    prompt_token_ids: tuple[int, ...] | None
    prompt_positions: tuple[int, ...]
    usage: Json | None
    errors: tuple[Json, ...]


def chat_stream(
    base_url: str, *, api_key: str | None = None, **body: Any
) -> Generator[Json, None, None]:
    """Yield the events of a streamed chat completion, each as soon as it arrives.

    Closing the iterator closes the connection. Raises HttpError, NoAnswer, or
    BrokenAnswer if an event is not a JSON object or the stream ends without `[DONE]`.
    """
    url = f"{base_url}{CHAT}"
    return post_stream(url, {"model": "default", **body}, api_key=api_key)


def ask(
    base_url: str,
    *,
    api_key: str | None = None,
    on_event: OnEvent | None = None,
    profile: Profile = AGENTCORE,
    **body: Any,
) -> Answer:
    """Return the answer to a chat request, streamed or not; raise any ClientError."""
    if body.get("stream"):
        events = chat_stream(base_url, api_key=api_key, **body)
        return read_events(_observed(events, on_event) if on_event else events, profile)
    url = f"{base_url}{CHAT}"
    response = post_json(url, {"model": "default", **body}, api_key=api_key)
    return read_response(response, profile)


def post_json(url: str, body: Json, *, api_key: str | None = None) -> Any:
    """Return the JSON response, not streamed; raise any ClientError."""
    with post(url, {**body, "stream": False}, api_key=api_key) as response:
        return _json(response.content)


def post_stream(
    url: str, body: Json, *, api_key: str | None = None, done: bool = True
) -> Generator[Json, None, None]:
    """Yield the events as they arrive; closing the iterator closes the connection."""
    with post(url, {**body, "stream": True}, api_key=api_key) as response:
        yield from parse_events(_lines(response), done=done)


def post(
    url: str, body: Json, *, api_key: str | None = None, timeout: float = TIMEOUT
) -> requests.Response:
    """Return the response to a JSON request; its body is not read yet if it is streamed.

    Raises NoAnswer, or HttpError on a status other than 200.
    """
    stream = bool(body.get("stream"))
    try:
        response = send(
            "POST", url, api_key=api_key, timeout=timeout, json=body, stream=stream
        )
        if response.status_code != 200:
            with response:
                body_text = response.content.decode(errors="replace")
                raise HttpError(response.status_code, body_text)
    except OSError as error:
        raise NoAnswer(f"No answer from {url}: {error}") from error
    return response


def send(
    method: str, url: str, *, api_key: str | None, timeout: float, **more: Any
) -> requests.Response:
    """Return the response to a request, with any status.

    Of the environment, only `CERTIFICATES` are used: a proxy would take requests to
    127.0.0.1. Raises OSError if there is no answer or no such file.
    """
    named = filter(None, map(os.environ.get, CERTIFICATES))
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with requests.Session() as session:
        session.trust_env = False
        session.verify = next(named, True)
        return session.request(method, url, headers=headers, timeout=timeout, **more)


def parse_events(lines: Iterable[bytes], *, done: bool = True) -> Iterator[Json]:
    """Yield the JSON objects of server-sent events (SSE), up to `[DONE]`.

    `done`: whether `[DONE]` must come; `/v1/messages` sends none. Raises BrokenAnswer if
    it is missing, or if an event is not a JSON object.
    """
    data: list[bytes] = []
    for line in lines:
        if line.startswith(b"data:"):
            data.append(line.removeprefix(b"data:").removeprefix(b" "))
        elif not line and data:
            event = b"\n".join(data)
            data.clear()
            if event == b"[DONE]":
                return
            yield _object(_json(event))
    if done:
        raise BrokenAnswer("The stream ended without [DONE].")
    if data:
        raise BrokenAnswer("The stream ended in the middle of an event.")


def read_response(response: Any, profile: Profile = AGENTCORE) -> Answer:
    """Convert a non-streaming response, or raise BrokenAnswer."""
    answer = _assemble([_object(response)], "message", profile)
    if not answer.completions:
        _malformed(response)
    return answer


def read_events(events: Iterable[Json], profile: Profile = AGENTCORE) -> Answer:
    """Convert a stream's events; raise BrokenAnswer if it breaks off without an error."""
    answer = _assemble(events, "delta", profile)
    if not answer.errors:
        if not answer.completions:
            raise BrokenAnswer("The stream ended before its first chunk.")
        for completion in answer.completions:
            if completion.finish_reason is None:
                raise BrokenAnswer(
                    f"The stream ended before choice {completion.index} finished."
                )
    return answer


def _assemble(events: Iterable[Json], body: str, profile: Profile) -> Answer:
    received: list[Json] = []
    pieces: dict[int, list[Piece]] = {}
    prompts: dict[int, tuple[int, ...]] = {}
    errors: list[Json] = []
    usage: Json | None = None
    for position, event in enumerate(events):
        received.append(event)
        if event.get("error") is not None:
            errors.append(event)
            continue
        try:
            if (prompt := profile.prompt_of(event)) is not None:
                prompts[position] = prompt
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                piece = _piece(position, choice, choice[body], profile)
                pieces.setdefault(choice["index"], []).append(piece)
        except (AttributeError, KeyError, TypeError):
            _malformed(event)
    try:
        completions = [_completion(index, pieces[index]) for index in sorted(pieces)]
    except BadRecord as error:
        raise BrokenAnswer(f"The answer {error}.") from error
    return Answer(
        events=tuple(received),
        completions=tuple(completions),
        prompt_token_ids=next(iter(prompts.values()), None),
        prompt_positions=tuple(prompts),
        usage=usage,
        errors=tuple(errors),
    )


def _piece(position: int, choice: Json, body: Json, profile: Profile) -> Piece:
    logprobs = choice.get("logprobs")
    return Piece(
        position=position,
        token_ids=profile.tokens_of(choice),
        logprobs=None if logprobs is None else tuple(logprobs["content"] or ()),
        content=body.get("content") or "",
        reasoning_content=first_at(body, REASONING) or "",
        tool_calls=tuple(body.get("tool_calls") or ()),
        finish_reason=choice.get("finish_reason"),
        raw=choice,
    )


def _completion(index: int, pieces: list[Piece]) -> Completion:
    ids = [piece.token_ids for piece in pieces if piece.token_ids is not None]
    logprobs = [piece.logprobs for piece in pieces if piece.logprobs is not None]
    calls = Record({"tool_calls": [c for piece in pieces for c in piece.tool_calls]})
    is_whole = "message" in pieces[0].raw
    finishes = [piece.finish_reason for piece in pieces if piece.finish_reason]
    return Completion(
        index=index,
        pieces=tuple(pieces),
        token_ids=tuple(i for part in ids for i in part) if ids else None,
        logprobs=tuple(e for part in logprobs for e in part) if logprobs else None,
        content="".join(piece.content for piece in pieces),
        reasoning_content="".join(piece.reasoning_content for piece in pieces),
        tool_calls=calls.calls()
        if is_whole
        else streamed_calls(calls.objs("tool_calls")),
        finish_reason=finishes[-1] if finishes else None,
    )


def _observed(events: Iterable[Json], on_event: OnEvent) -> Iterator[Json]:
    for event in events:
        on_event(event)
        yield event


def _lines(response: requests.Response) -> Iterator[bytes]:
    try:
        yield from response.iter_lines(chunk_size=None)
    except requests.RequestException as error:
        raise BrokenAnswer(f"The stream was cut off: {error}") from error


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise BrokenAnswer(f"Not JSON: {text.decode(errors='replace')}") from None


def _object(value: Any) -> Json:
    if not isinstance(value, dict):
        _malformed(value)
    return value


def _malformed(value: object) -> NoReturn:
    raise BrokenAnswer(
        f"Not a chat completion: {json.dumps(value, ensure_ascii=False)}"
    )
