"""OpenAI's `/v1/responses`, streamed or not."""

from __future__ import annotations

from typing import Any

from ..turns import Answer, Call, History, Json, Message, Turn, joined
from . import fields
from .choices import versions_of
from .fields import BadRecord, arguments_text, count, ids, numbers, obj, objs, text


def turn(request: Json, events: list[Json], session: str | None) -> Turn:
    whole = events[0] if events[0].get("object") == "response" else _joined(events)
    output = joined(_messages(whole.get("output"), "output"))
    usage = obj(whole.get("usage"), "usage")
    metadata = obj(whole.get("metadata"), "metadata")
    tokens = usage.get("output_tokens", usage.get("completion_tokens"))
    return Turn(
        shape="responses",
        session=session,
        history=_history(request),
        prompt=ids(whole.get("prompt_token_ids"), "prompt_token_ids"),
        answers=(
            Answer(
                text=output.text,
                reasoning=output.reasoning,
                calls=output.calls,
                ids=ids(whole.get("token_ids"), "token_ids"),
                logprobs=numbers(whole.get("token_logprobs"), "token_logprobs"),
                tokens=count(tokens, "usage.output_tokens"),
                finish=str(whole.get("status") or ""),
                versions=versions_of(metadata),
            ),
        ),
    )


def _joined(events: list[Json]) -> Json:
    """Return a stream's last response, or, if it broke off, the IDs of its events."""
    whole: Json = {}
    for event in events:
        whole |= obj(event.get("response"), "response")
    if not whole:
        raise BadRecord("has `chunks` without a response")
    return {**whole, **fields.token_lists(events)}


def _messages(value: Any, name: str) -> list[Message]:
    """The items of an input or an output as messages."""
    found = []
    for item in objs(value, name):
        kind = item.get("type", "message")
        if kind == "message":
            role = fields.role(item.get("role"), name)
            found.append(Message(role, fields.content(item.get("content"), name)))
        elif kind == "reasoning":
            thought = fields.content(item.get("content") or item.get("summary"), name)
            found.append(Message("assistant", "", thought))
        elif kind == "function_call":
            arguments = arguments_text(item.get("arguments"), name)
            call = Call(text(item.get("name"), name), arguments)
            found.append(Message("assistant", "", "", (call,)))
        elif kind == "function_call_output":
            found.append(Message("tool", fields.content(item.get("output"), name)))
    return found


def _history(request: Json) -> History:
    messages = []
    if instructions := request.get("instructions"):
        messages.append(Message("system", text(instructions, "request.instructions")))
    given = request.get("input")
    if isinstance(given, str):
        messages.append(Message("user", given))
    else:
        messages += _messages(given, "request.input")
    return History.of(messages, request.get("tools"))
