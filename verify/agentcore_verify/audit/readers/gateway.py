"""Traces that rllm-model-gateway 0.1.0 stores."""

from __future__ import annotations

from ..turns import Answer, History, Json, Turn
from . import fields
from .choices import one_span, spans
from .fields import count, ids, numbers, obj, optional_text


def turn(record: Json) -> Turn:
    """Return the turn in a trace. The gateway stores an empty list for missing IDs."""
    message = obj(record.get("response_message"), "response_message")
    request = obj(record.get("raw_request"), "raw_request")
    response = obj(record.get("raw_response"), "raw_response")
    metadata = obj(response.get("metadata"), "raw_response.metadata")
    counts = obj(record.get("token_counts"), "token_counts")
    messages = fields.chat(record.get("messages"))
    # The gateway stores no response of a stream, whose calls are in parts.
    streamed = record.get("raw_response") is None
    calls = fields.streamed_calls if streamed else fields.calls
    version = metadata.get("weight_version") or response.get("weight_version")
    return Turn(
        shape="gateway",
        session=optional_text(record.get("session_id"), "session_id"),
        history=History.of(messages, request.get("tools")) if messages else None,
        prompt=ids(record.get("prompt_token_ids"), "prompt_token_ids") or None,
        answers=(
            Answer(
                text=fields.content(message.get("content"), "response_message.content"),
                reasoning=fields.reasoning(message, "response_message"),
                calls=calls(message.get("tool_calls"), "tool_calls"),
                ids=ids(record["completion_token_ids"], "completion_token_ids") or None,
                logprobs=numbers(record.get("logprobs"), "logprobs"),
                tokens=count(counts.get("completion"), "token_counts.completion"),
                finish=str(record.get("finish_reason") or ""),
                versions=spans(metadata.get("weight_versions")) or one_span(version),
            ),
        ),
        stops=fields.strings(request.get("stop"), "raw_request.stop"),
    )
