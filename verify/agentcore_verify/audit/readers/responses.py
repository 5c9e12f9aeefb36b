"""OpenAI's `/v1/responses`, streamed or not."""

from __future__ import annotations

from ...profiles import Json
from ..turns import Answer, Call, History, Message, Turn, joined
from .choices import versions_of
from .fields import BadRecord, Record, token_lists


def turn(request: Record, events: list[Record], session: str | None) -> Turn:
    whole = events[0] if events[0].get("object") == "response" else _joined(events)
    usage = whole.obj("usage")
    messages = []
    if request.get("instructions"):
        messages.append(Message("system", request.text("instructions")))
    if isinstance(request.get("input"), str):
        messages.append(Message("user", request.text("input")))
    else:
        messages += _messages(request, "input")
    answer = Answer(
        **vars(joined(_messages(whole, "output"))),
        ids=whole.ids("token_ids"),
        logprobs=whole.numbers("token_logprobs"),
        tokens=usage.count(
            "output_tokens" if "output_tokens" in usage else "completion_tokens"
        ),
        finish=str(whole.get("status") or ""),
        versions=versions_of(whole.obj("metadata")),
    )
    return Turn(
        shape="responses",
        session=session,
        history=History.of(messages, request.get("tools")),
        prompt=whole.ids("prompt_token_ids"),
        answers=(answer,),
    )


def _joined(events: list[Record]) -> Record:
    """Return a stream's last response, or, if it broke off, the IDs of its events."""
    whole: Json = {}
    for event in events:
        whole |= event.obj("response").values
    if not whole:
        raise BadRecord("has `chunks` without a response")
    return Record({**whole, **token_lists(events)})


def _messages(holder: Record, key: str) -> list[Message]:
    """Return the items of an input or an output as messages."""
    found = []
    for item in holder.objs(key):
        match item.values.get("type", "message"):
            case "message":
                found.append(Message(item.role(), item.content()))
            case "reasoning":
                part = "content" if item.get("content") else "summary"
                found.append(Message(reasoning=item.content(part)))
            case "function_call":
                call = Call(item.text("name"), item.arguments("arguments"))
                found.append(Message(calls=(call,)))
            case "function_call_output":
                found.append(Message("tool", item.content("output")))
    return found
