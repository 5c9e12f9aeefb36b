"""A recorded turn of a conversation, in one form for all recorders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise


@dataclass(frozen=True)
class Call:
    """A tool call of an answer; `arguments` is JSON text, as the model wrote it."""

    name: str
    arguments: str
    id: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Span:
    """The tokens from `start` to before `end` that one weight version gave.

    `end` is None if the span lasts until the end of the answer.
    """

    version: str
    start: int
    end: int | None = None


@dataclass(frozen=True)
class Message:
    """A message of a request. A system message has the role `system`."""

    role: str = "assistant"
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


def joined(messages: Sequence[Message]) -> Message:
    return Message(
        text="".join(message.text for message in messages),
        reasoning="".join(message.reasoning for message in messages),
        calls=tuple(call for message in messages for call in message.calls),
    )


@dataclass(frozen=True)
class Answer(Message):
    """One choice of a turn; its text is without reasoning and tool calls.

    Attributes:
        ids: the token IDs; None if none were recorded.
        logprobs: the logprob of each token, None for null; None if none were recorded.
        pieces: the text of each token as the logprobs have it.
        named: the token IDs as the logprobs have them.
        tokens: the number of tokens that the server counted; None if unknown.
        finish: the finish reason.
        versions: the weight versions that sampled the tokens.
    """

    ids: list[int] | None = None
    logprobs: list[float | None] | None = None
    pieces: list[str] | None = None
    named: list[int] | None = None
    tokens: int | None = None
    finish: str = ""
    versions: tuple[Span, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not any((self.text, self.reasoning, self.calls, self.ids, self.tokens))

    @property
    def was_cut(self) -> bool:
        return self.finish in ("length", "max_tokens", "abort", "incomplete")

    @property
    def length(self) -> int:
        return len(self.ids or self.logprobs or ()) or self.tokens or 0


@dataclass(frozen=True)
class History:
    """The messages of a request.

    Attributes:
        system: a digest of the system prompt.
        tools: a digest of the tools.
        answers: the number of answers of the assistant.
        inputs: a digest of the other messages.
        inputs_before: the same, of those before the last answer.
        reasons: True if the last answer has its reasoning.
    """

    system: bytes
    tools: bytes
    answers: int
    inputs: bytes
    inputs_before: bytes
    reasons: bool = False

    @staticmethod
    def of(messages: Sequence[Message], tools: object) -> History:
        chat = [message for message in messages if message.role != "system"]
        system = [message for message in messages if message.role == "system"]
        end = len(chat)
        while end and chat[end - 1].role != "assistant":
            end -= 1
        start = end
        while start and chat[start - 1].role == "assistant":
            start -= 1
        roles = ["", *(message.role for message in chat)]
        answers = sum(role == "assistant" != before for before, role in pairwise(roles))
        return History(
            system=digest(message.text for message in system),
            tools=digest([json.dumps(tools, sort_keys=True)] if tools else []),
            answers=answers,
            inputs=_digest_of_inputs(chat),
            inputs_before=_digest_of_inputs(chat[:start]),
            reasons=any(
                message.reasoning or "</think>" in message.text
                for message in chat[start:end]
            ),
        )


def _digest_of_inputs(messages: Iterable[Message]) -> bytes:
    return digest(
        f"{message.role}\0{message.text}"
        for message in messages
        if message.role != "assistant"
    )


def digest(texts: Iterable[str]) -> bytes:
    found = blake2b(digest_size=16)
    for text in texts:
        found.update(text.encode("utf-8", "surrogatepass") + b"\0\0")
    return found.digest()


@dataclass(frozen=True)
class Turn:
    """A request and its answers.

    Attributes:
        shape: the API or the program whose shape the record has.
        session: the conversation that it is a turn of; None if the record names none.
        history: the messages of the request; None if the prompt was no chat.
        prompt: the token IDs of the prompt; None if none were recorded.
        stops: the stop strings of the request.
        error: True if the server answered with an error.
    """

    shape: str
    session: str | None
    history: History | None
    prompt: list[int] | None
    answers: tuple[Answer, ...]
    stops: tuple[str, ...] = ()
    error: bool = False
