"""Requests and server-sent events in, completions out."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import requests

Json = dict[str, Any]

TIMEOUT = 300.0
"""Seconds without a byte after which a server counts as silent."""


class ClientError(Exception):
    """The server gave no answer, or one that its protocol does not allow."""


class NoAnswer(ClientError):
    """The connection was refused, or ended or fell silent before an answer."""


class HttpError(ClientError):
    """The server answered with a status other than 200."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body}")
        self.status = status
        self.body = body


class BrokenAnswer(ClientError):
    """A stream that was cut, an event or a response that cannot be read."""


@dataclass(frozen=True)
class ToolCall:
    """One tool call; `arguments` is JSON text, as the model wrote it."""

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True)
class Piece:
    """What one chunk carried for one choice, or a whole non-streaming choice.

    `position` counts the events of the stream from 0; `token_ids` and `logprobs` are
    None where the chunk had no such field; `raw` is the choice as it was sent.
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
    """One choice, put together from its pieces in order.

    `token_ids` and `logprobs` are all the pieces' joined, None if no piece had any.
    """

    index: int
    pieces: tuple[Piece, ...]
    token_ids: tuple[int, ...] | None
    logprobs: tuple[Json, ...] | None
    content: str
    reasoning_content: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None

    @property
    def raw(self) -> Json:
        """The last piece as it was sent: of a non-streaming answer, the whole choice."""
        return self.pieces[-1].raw


@dataclass(frozen=True)
class Answer:
    """A chat completion, whether it was streamed or not.

    `events` are the response or the stream's events as they were sent;
    `prompt_positions` says which of them carried `prompt_token_ids`; `errors` are the
    error events of the stream; `completions` are sorted by index.
    """

    events: tuple[Json, ...]
    completions: tuple[Completion, ...]
    prompt_token_ids: tuple[int, ...] | None
    prompt_positions: tuple[int, ...]
    usage: Json | None
    errors: tuple[Json, ...]


def chat(
    base_url: str, *, api_key: str | None = None, timeout: float = TIMEOUT, **body: Any
) -> Json:
    """The response to a chat completion request that is not streamed.

    Raises HttpError, NoAnswer, or BrokenAnswer if the response is no JSON object.
    """
    body = {"model": "default", **body, "stream": False}
    url = f"{base_url}/v1/chat/completions"
    with post(url, body, api_key=api_key, timeout=timeout) as response:
        return _object(response.content)


def chat_stream(
    base_url: str, *, api_key: str | None = None, timeout: float = TIMEOUT, **body: Any
) -> Generator[Json, None, None]:
    """The events of a streamed chat completion, each as soon as it arrives.

    Closing the iterator closes the connection. Raises HttpError, NoAnswer, or
    BrokenAnswer if an event is no JSON object or the stream ends without `[DONE]`.
    """
    body = {"model": "default", **body, "stream": True}
    url = f"{base_url}/v1/chat/completions"
    with post(url, body, api_key=api_key, timeout=timeout) as response:
        yield from parse_events(_lines(response))


def ask(
    base_url: str, *, api_key: str | None = None, timeout: float = TIMEOUT, **body: Any
) -> Answer:
    """The answer to a chat completion request, streamed if `stream` is true in it.

    Raises what `chat`, `chat_stream`, `read_response` and `read_events` raise.
    """
    if body.get("stream"):
        return read_events(
            chat_stream(base_url, api_key=api_key, timeout=timeout, **body)
        )
    return read_response(chat(base_url, api_key=api_key, timeout=timeout, **body))


def generate(
    base_url: str, *, api_key: str | None = None, timeout: float = TIMEOUT, **body: Any
) -> Any:
    """The response of `/generate`, not streamed: an object, or a list for a batch."""
    url = f"{base_url}/generate"
    body = {**body, "stream": False}
    with post(url, body, api_key=api_key, timeout=timeout) as response:
        return _json(response.content)


def generate_stream(
    base_url: str, *, api_key: str | None = None, timeout: float = TIMEOUT, **body: Any
) -> Iterator[Json]:
    """The events of a streamed `/generate`, as `chat_stream` gives those of a chat."""
    url = f"{base_url}/generate"
    body = {**body, "stream": True}
    with post(url, body, api_key=api_key, timeout=timeout) as response:
        yield from parse_events(_lines(response))


def post(
    url: str, body: Json, *, api_key: str | None = None, timeout: float = TIMEOUT
) -> requests.Response:
    """The response to a JSON request, its body unread if the request asks to stream.

    No proxy is used. Raises NoAnswer, or HttpError on any status but 200.
    """
    with requests.Session() as session:
        session.trust_env = False
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            response = session.post(
                url,
                json=body,
                headers=headers,
                timeout=timeout,
                stream=bool(body.get("stream")),
            )
            if response.status_code != 200:
                with response:
                    body_text = response.content.decode(errors="replace")
                    raise HttpError(response.status_code, body_text)
        except requests.RequestException as error:
            raise NoAnswer(f"No answer from {url}: {error}") from error
    return response


def parse_events(lines: Iterable[bytes]) -> Iterator[Json]:
    """The JSON objects of server-sent events, up to `[DONE]`.

    Raises BrokenAnswer if an event is no JSON object or the lines end without `[DONE]`.
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
            yield _object(event)
    raise BrokenAnswer("The stream ended without [DONE].")


def read_response(response: Json) -> Answer:
    """A non-streaming response as an Answer; BrokenAnswer if it is no chat completion."""
    answer = _assemble([response], "message")
    if not answer.completions:
        _malformed(response)
    return answer


def read_events(events: Iterable[Json]) -> Answer:
    """The events of a stream as an Answer.

    Raises BrokenAnswer if one is no chat completion chunk, or if a choice never
    finished although no error event says why.
    """
    answer = _assemble(events, "delta")
    if not answer.errors:
        if not answer.completions:
            raise BrokenAnswer("The stream ended before its first chunk.")
        for completion in answer.completions:
            if completion.finish_reason is None:
                raise BrokenAnswer(
                    f"The stream ended before choice {completion.index} finished."
                )
    return answer


def _assemble(events: Iterable[Json], body: str) -> Answer:
    seen: list[Json] = []
    pieces: dict[int, list[Piece]] = {}
    prompts: dict[int, tuple[int, ...]] = {}
    errors: list[Json] = []
    usage: Json | None = None
    for position, event in enumerate(events):
        seen.append(event)
        if "error" in event:
            errors.append(event)
            continue
        try:
            if (prompt := event.get("prompt_token_ids")) is not None:
                prompts[position] = tuple(prompt)
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                piece = _piece(position, choice, choice[body])
                pieces.setdefault(choice["index"], []).append(piece)
        except (AttributeError, KeyError, TypeError):
            _malformed(event)
    return Answer(
        events=tuple(seen),
        completions=tuple(
            _completion(index, pieces[index]) for index in sorted(pieces)
        ),
        prompt_token_ids=next(iter(prompts.values()), None),
        prompt_positions=tuple(prompts),
        usage=usage,
        errors=tuple(errors),
    )


def _piece(position: int, choice: Json, body: Json) -> Piece:
    token_ids = choice.get("token_ids")
    logprobs = choice.get("logprobs")
    return Piece(
        position=position,
        token_ids=None if token_ids is None else tuple(token_ids),
        logprobs=None if logprobs is None else tuple(logprobs["content"] or ()),
        content=body.get("content") or "",
        reasoning_content=body.get("reasoning_content") or "",
        tool_calls=tuple(body.get("tool_calls") or ()),
        finish_reason=choice.get("finish_reason"),
        raw=choice,
    )


def _completion(index: int, pieces: list[Piece]) -> Completion:
    ids = [piece.token_ids for piece in pieces if piece.token_ids is not None]
    logprobs = [piece.logprobs for piece in pieces if piece.logprobs is not None]
    finishes = [piece.finish_reason for piece in pieces if piece.finish_reason]
    return Completion(
        index=index,
        pieces=tuple(pieces),
        token_ids=tuple(i for part in ids for i in part) if ids else None,
        logprobs=tuple(e for part in logprobs for e in part) if logprobs else None,
        content="".join(piece.content for piece in pieces),
        reasoning_content="".join(piece.reasoning_content for piece in pieces),
        tool_calls=_tool_calls(pieces),
        finish_reason=finishes[-1] if finishes else None,
    )


def _tool_calls(pieces: list[Piece]) -> tuple[ToolCall, ...]:
    """The calls that the pieces' deltas spell out, by their index."""
    calls: dict[int, ToolCall] = {}
    for piece in pieces:
        for position, delta in enumerate(piece.tool_calls):
            at = delta.get("index")
            at = position if at is None else at
            function: Mapping[str, Any] = delta.get("function") or {}
            call = calls.get(at, ToolCall("", ""))
            calls[at] = ToolCall(
                name=call.name + (function.get("name") or ""),
                arguments=call.arguments + (function.get("arguments") or ""),
                id=call.id or delta.get("id"),
            )
    return tuple(calls[at] for at in sorted(calls))


def _lines(response: requests.Response) -> Iterator[bytes]:
    """The lines of a streamed body, each as soon as it arrives."""
    try:
        yield from response.iter_lines(chunk_size=None)
    except requests.RequestException as error:
        raise BrokenAnswer(f"The stream was cut: {error}") from error


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        shown = text.decode(errors="replace")
        raise BrokenAnswer(f"Not JSON: {shown}") from None


def _object(text: bytes) -> Json:
    value = _json(text)
    if not isinstance(value, dict):
        _malformed(value)
    return value


def _malformed(value: object) -> NoReturn:
    raise BrokenAnswer(
        f"Not a chat completion: {json.dumps(value, ensure_ascii=False)}"
    )
