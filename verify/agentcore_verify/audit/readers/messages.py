"""Anthropic's `/v1/messages`, streamed or not."""

from __future__ import annotations

from typing import Any

from ...profiles import Json
from ..turns import Answer, Call, History, Message, Turn
from .choices import versions_of
from .fields import Record, token_lists


def turn(request: Record, events: list[Record], session: str | None) -> Turn:
    whole = events[0] if events[0].get("type") == "message" else _joined(events)
    messages = [_message(one, one.role()) for one in request.objs("messages")]
    if request.get("system"):
        messages.insert(0, Message("system", request.content("system")))
    answer = Answer(
        **vars(_message(whole)),
        ids=whole.ids("token_ids"),
        logprobs=whole.numbers("token_logprobs"),
        tokens=whole.obj("usage").count("output_tokens"),
        finish=str(whole.get("stop_reason") or ""),
        versions=versions_of(whole.obj("metadata")),
    )
    return Turn(
        shape="messages",
        session=session,
        history=History.of(messages, request.get("tools")),
        prompt=whole.ids("prompt_token_ids"),
        answers=(answer,),
        stops=request.strings("stop_sequences"),
    )


def _joined(events: list[Record]) -> Record:
    whole: Json = {}
    blocks: dict[Any, Json] = {}
    for event in events:
        kind = event.get("type")
        index = event.count("index") or 0
        if kind == "message_start":
            whole |= event.obj("message").values
        elif kind == "content_block_start":
            # Its input is empty; the deltas have it.
            blocks[index] = {**event.obj("content_block").values, "input": ""}
        elif kind == "content_block_delta":
            delta = event.obj("delta")
            block = blocks.setdefault(index, {"type": "text"})
            for key, name in (
                ("text", "text"),
                ("thinking", "thinking"),
                ("partial_json", "input"),
            ):
                if key in delta:
                    block[name] = Record(block).text(name) + delta.text(key)
        elif kind == "message_delta":
            usage = Record(whole).obj("usage").values | event.obj("usage").values
            whole |= {**event.obj("delta").values, "usage": usage}
    return Record({**whole, **token_lists(events), "content": [*blocks.values()]})


def _message(message: Record, role: str = "assistant") -> Message:
    if not isinstance(message.get("content"), list):
        return Message(role, message.text("content"))
    content, reasoning, calls = "", "", list[Call]()
    for block in message.objs("content"):
        if block.get("type") == "tool_use":
            calls.append(Call(block.text("name"), block.arguments("input")))
        elif block.get("type") == "thinking":
            reasoning += block.text("thinking")
        elif block.get("type") == "tool_result":
            content += block.content()
        else:
            content += block.text("text")
    return Message(role, content, reasoning, tuple(calls))
