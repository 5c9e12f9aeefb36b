"""Readers of recorded turns: one module for each shape."""

from __future__ import annotations

from collections.abc import Iterator

from ..turns import Json, Turn
from . import choices, gateway, messages, responses, verifiers
from .fields import BadRecord, obj, objs, optional_text

EXPECTED = (
    "an object with `request` and `response` or `chunks`, a trace of "
    "rllm-model-gateway, or a rollout of verifiers"
)


def turns_of(record: Json) -> Iterator[Turn]:
    """Yield the turns in a line of a file; raise BadRecord for other JSON."""
    if "request" in record and ("response" in record or "chunks" in record):
        yield from _exchange(record)
    elif "trace_id" in record and "completion_token_ids" in record:
        yield gateway.turn(record)
    elif "nodes" in record or "traces" in record:
        yield from verifiers.turns_of_traces(record)
    elif "trajectory" in record or ("prompt" in record and "completion" in record):
        yield from verifiers.turns_of_rollout(record)
    else:
        raise BadRecord(f"is not a recorded turn: expected {EXPECTED}")


def _exchange(record: Json) -> list[Turn]:
    """Return the turns in a request and its response or the chunks of its stream."""
    request = obj(record["request"], "request")
    streamed = record.get("response") is None
    events = (
        objs(record.get("chunks"), "chunks")
        if streamed
        else [obj(record["response"], "response")]
    )
    session = optional_text(record.get("session"), "session")
    if not events or any(map(_is_error, events)):
        return [Turn("error", session, None, None, (), error=True)]
    first = events[0]
    if any("choices" in event for event in events):
        return choices.turns(request, events, session)
    kind = str(first.get("type") or first.get("object"))
    if kind in ("message", "message_start", "ping"):
        return [messages.turn(request, events, session)]
    if kind.startswith("response"):
        return [responses.turn(request, events, session)]
    name = "chunks" if streamed else "response"
    raise BadRecord(
        f"has a `{name}` of no known shape: expected one of chat completions, "
        "completions, messages or responses"
    )


def _is_error(event: Json) -> bool:
    kind = event.get("type") or event.get("object")
    return bool(event.get("error")) or kind == "error"
