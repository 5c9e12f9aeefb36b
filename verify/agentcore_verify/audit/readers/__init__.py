"""Readers of recorded turns: one module for each shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...profiles import Json
from ..turns import Turn
from . import choices, gateway, messages, responses, verifiers
from .fields import BadRecord, Record

EXPECTED = (
    "an object with `request` and `response` or `chunks`, a trace of "
    "rllm-model-gateway, or a rollout of verifiers"
)


def turns_of(line: Json) -> Iterator[Turn]:
    """Yield the turns in a line of a file; raise BadRecord for other JSON."""
    record = Record(line)
    if "request" in line and ("response" in line or "chunks" in line):
        yield from _exchange(record)
    elif "trace_id" in line and "completion_token_ids" in line:
        yield gateway.turn(record)
    elif "nodes" in line or "traces" in line:
        yield from verifiers.turns_of_traces(record)
    elif "trajectory" in line or ("prompt" in line and "completion" in line):
        yield from verifiers.turns_of_rollout(record)
    else:
        raise BadRecord(f"is not a recorded turn: expected {EXPECTED}")


def _exchange(record: Record) -> list[Turn]:
    """Return the turns in a request and its response or the chunks of its stream."""
    request, session = record.obj("request"), record.optional_text("session")
    name = "chunks" if record.get("response") is None else "response"
    found = record.objs(name) if name == "chunks" else [record.obj(name)]
    # Messages name a field by its place in the response.
    events = [replace(event, name="") for event in found]
    if not events or any(map(_is_error, events)):
        return [Turn("error", session, None, None, (), error=True)]
    if any("choices" in event for event in events):
        return choices.turns(request, events, session)
    kind = str(events[0].get("type") or events[0].get("object"))
    if kind in ("message", "message_start", "ping"):
        return [messages.turn(request, events, session)]
    if kind.startswith("response"):
        return [responses.turn(request, events, session)]
    raise BadRecord(
        f"has a `{name}` of no known shape: expected one of chat completions, "
        "completions, messages or responses"
    )


def _is_error(event: Record) -> bool:
    kind = event.get("type") or event.get("object")
    return bool(event.get("error")) or kind == "error"
