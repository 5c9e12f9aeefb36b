"""Traces that rllm-model-gateway 0.1.0 stores."""

from __future__ import annotations

from ..turns import Answer, History, Turn
from .choices import versions_of
from .fields import Record, streamed_calls


def turn(record: Record) -> Turn:
    """Return the turn in a trace. The gateway stores an empty list for missing IDs."""
    message = record.obj("response_message")
    request, response = record.obj("raw_request"), record.obj("raw_response")
    messages = record.messages("messages")
    if record.get("raw_response") is None:
        # The gateway stores no response of a stream, whose calls are in parts.
        calls = streamed_calls(message.objs("tool_calls"))
    else:
        calls = message.calls()
    answer = Answer(
        text=message.content(),
        reasoning=message.reasoning(),
        calls=calls,
        ids=record.ids("completion_token_ids") or None,
        logprobs=record.numbers("logprobs"),
        tokens=record.obj("token_counts").count("completion"),
        finish=str(record.get("finish_reason") or ""),
        versions=versions_of(response.obj("metadata")) or versions_of(response),
    )
    return Turn(
        shape="gateway",
        session=record.optional_text("session_id"),
        history=History.of(messages, request.get("tools")) if messages else None,
        prompt=record.ids("prompt_token_ids") or None,
        answers=(answer,),
        stops=request.strings("stop"),
    )
