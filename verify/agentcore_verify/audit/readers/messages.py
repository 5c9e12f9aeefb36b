"""Anthropic's `/v1/messages`, streamed or not."""

from __future__ import annotations

from typing import Any

from ..turns import Answer, Call, History, Json, Message, Turn
from . import fields
from .choices import versions_of
from .fields import arguments_text, count, ids, numbers, obj, objs, text


def turn(request: Json, events: list[Json], session: str | None) -> Turn:
    whole = events[0] if events[0].get("type") == "message" else _joined(events)
    content, reasoning, calls = _parts(whole.get("content"), "content")
    usage = obj(whole.get("usage"), "usage")
    metadata = obj(whole.get("metadata"), "metadata")
    return Turn(
        shape="messages",
        session=session,
        history=_history(request),
        prompt=ids(whole.get("prompt_token_ids"), "prompt_token_ids"),
        answers=(
            Answer(
                text=content,
                reasoning=reasoning,
                calls=calls,
                ids=ids(whole.get("token_ids"), "token_ids"),
                logprobs=numbers(whole.get("token_logprobs"), "token_logprobs"),
                tokens=count(usage.get("output_tokens"), "usage.output_tokens"),
                finish=str(whole.get("stop_reason") or ""),
                versions=versions_of(metadata),
            ),
        ),
        stops=fields.strings(request.get("stop_sequences"), "request.stop_sequences"),
    )


def _joined(events: list[Json]) -> Json:
    whole: Json = {}
    blocks: dict[Any, Json] = {}
    for event in events:
        if event.get("type") == "message_start":
            whole |= obj(event.get("message"), "message")
        elif event.get("type") == "content_block_start":
            block = obj(event.get("content_block"), "content_block")
            # Its input is empty; the deltas have it.
            blocks[_index(event)] = {**block, "input": ""}
        elif event.get("type") == "content_block_delta":
            delta = obj(event.get("delta"), "delta")
            block = blocks.setdefault(_index(event), {"type": "text"})
            for key, name in (
                ("text", "text"),
                ("thinking", "thinking"),
                ("partial_json", "input"),
            ):
                if key in delta:
                    block[name] = text(block.get(name), name) + text(delta[key], key)
        elif event.get("type") == "message_delta":
            usage = obj(whole.get("usage"), "usage") | obj(event.get("usage"), "usage")
            whole |= {**obj(event.get("delta"), "delta"), "usage": usage}
    return {**whole, **fields.token_lists(events), "content": list(blocks.values())}


def _index(event: Json) -> int:
    return count(event.get("index"), "index") or 0


def _parts(value: Any, name: str) -> tuple[str, str, tuple[Call, ...]]:
    """Return the text, the reasoning and the tool calls of a message."""
    if not isinstance(value, list):
        return text(value, name), "", ()
    content, reasoning, calls = "", "", list[Call]()
    for block in objs(value, name):
        if block.get("type") == "tool_use":
            arguments = arguments_text(block.get("input"), name)
            calls.append(Call(text(block.get("name"), name), arguments))
        elif block.get("type") == "thinking":
            reasoning += text(block.get("thinking"), name)
        elif block.get("type") == "tool_result":
            content += fields.content(block.get("content"), name)
        else:
            content += text(block.get("text"), name)
    return content, reasoning, tuple(calls)


def _history(request: Json) -> History:
    messages = []
    if system := request.get("system"):
        messages.append(Message("system", fields.content(system, "request.system")))
    for message in objs(request.get("messages"), "request.messages"):
        parts = _parts(message.get("content"), "request.messages[].content")
        role = fields.role(message.get("role"), "request.messages[].role")
        messages.append(Message(role, *parts))
    return History.of(messages, request.get("tools"))
