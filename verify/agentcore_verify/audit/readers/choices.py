"""Chat completions and completions, streamed or not; SGLang's and vLLM's names."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, TypeVar

from ...profiles import PROMPT, RECORDED_IDS, Json, as_id, first_at
from ..turns import Answer, History, Span, Turn
from .fields import BadRecord, Record, streamed_calls

T = TypeVar("T")


def turns(request: Record, events: list[Record], session: str | None) -> list[Turn]:
    """Return the turn of an answer or a stream; one for each prompt of completions."""
    choices: dict[int, list[tuple[Record, Any]]] = {}
    """The parts of each choice, with the weight version of their event."""
    prompt, usage, metadata = None, Record({}), Json()
    for event in events:
        prompt = prompt or event.ids(PROMPT)
        usage = event.obj("usage") or usage
        of_event = event.obj("metadata")
        metadata |= of_event.values
        version = of_event.get("weight_version") or event.get("weight_version")
        for position, part in enumerate(event.objs("choices")):
            index = part.count("index")
            parts = choices.setdefault(position if index is None else index, [])
            parts.append((part, version))
    if not choices:
        raise BadRecord("has an answer without `choices`")
    tokens = usage.count("completion_tokens")
    history = None
    if request.get("messages") is not None:
        history = History.of(request.messages("messages"), request.get("tools"))
    by_prompt: list[tuple[list[int] | None, list[Answer]]] = []
    for parts in choices.values():
        own = next(filter(None, (part.ids(PROMPT) for part, _ in parts)), prompt)
        if not by_prompt or by_prompt[-1][0] != own:
            by_prompt.append((own, []))
        echoed = len(own or ()) if request.get("echo") else 0
        counted = tokens if len(choices) == 1 else None
        answer = _answer(parts, Record(metadata, "metadata"), counted, echoed)
        by_prompt[-1][1].append(answer)
    shape = "completions" if history is None else "chat"
    return [
        Turn(shape, session, history, own, tuple(answers), request.strings("stop"))
        for own, answers in by_prompt
    ]


def _answer(
    versioned: list[tuple[Record, Any]],
    metadata: Record,
    tokens: int | None,
    n_echoed: int,
) -> Answer:
    """Join the parts of a choice. `n_echoed` logprobs of an echoed prompt come first."""
    parts = [part for part, _ in versioned]
    bodies = [part.obj("message") or part.obj("delta") for part in parts]
    ids_of_parts = [
        Record({"token_ids": first_at(part.values, RECORDED_IDS)}, part.name).ids(
            "token_ids"
        )
        for part in parts
    ]
    ids = _joined(ids_of_parts)
    read = [_logprobs(part) for part in parts]
    logprobs = _joined(found for found, _ in read)
    named_or_pieces = [token for _, tokens in read for token in tokens]
    meta = _last(part.obj("meta_info") for part in parts) or Record({})
    by_engine = _engine_rows(meta)
    logprobs = by_engine.numbers("logprobs") if logprobs is None else logprobs
    ids = by_engine.ids("ids") if ids is None else ids
    if logprobs is not None:
        logprobs, named_or_pieces = logprobs[n_echoed:], named_or_pieces[n_echoed:]
    flat = _joined(part.numbers("token_logprobs") for part in parts)
    pieces = [token for token in named_or_pieces if isinstance(token, str)]
    named = [token for token in named_or_pieces if isinstance(token, int)]
    if all(part.get("message") for part in parts):
        calls = tuple(call for body in bodies for call in body.calls())
    else:
        calls = streamed_calls(
            part for one in bodies for part in one.objs("tool_calls")
        )
    starts = accumulate((len(one or ()) for one in ids_of_parts), initial=0)
    return Answer(
        text="".join(
            body.content() + part.text("text")
            for body, part in zip(bodies, parts, strict=True)
        ),
        reasoning="".join(body.reasoning() for body in bodies),
        calls=calls,
        ids=named if ids is None and named and not pieces else ids,
        logprobs=logprobs if flat is None else flat,
        pieces=pieces or None,
        named=named or None,
        tokens=tokens,
        finish=str(_last(part.get("finish_reason") for part in parts) or ""),
        versions=next(filter(None, map(spans, (*parts, meta, metadata))), ())
        or _joined_spans(
            zip((version for _, version in versioned), starts, strict=False)
        )
        or versions_of(meta),
    )


def _last(values: Iterable[T]) -> T | None:
    """Return the last value that is not empty."""
    return next(filter(None, reversed([*values])), None)


def _joined(lists: Iterable[list[T] | None]) -> list[T] | None:
    """Return all lists in one; None if there is none."""
    found = [one for one in lists if one is not None]
    return [value for one in found for value in one] if found else None


def _logprobs(part: Record) -> tuple[list[float | None] | None, list[int | str]]:
    """Return the logprobs of a part, and their tokens: the IDs, or else the texts."""
    if not part.get("logprobs"):
        return None, []
    found = part.obj("logprobs")
    if (flat := found.numbers("token_logprobs")) is not None:
        tokens = found.get("tokens")
        texts = tokens if isinstance(tokens, list) else []
        return flat, [as_id(str(text)) for text in texts]
    if found.get("content") is None:
        return None, []
    entries = found.objs("content")
    return [entry.number("logprob") for entry in entries], [*map(_token, entries)]


def _token(entry: Record) -> int | str:
    """Return a token's ID or text; `bytes` also has incomplete characters."""
    number, value = entry.get("token_id"), entry.get("bytes")
    if type(number) is int:
        return number
    if isinstance(value, list) and all(type(one) is int for one in value):
        try:
            found = as_id(bytes(value).decode("utf-8", "replace"))
        except ValueError:
            raise BadRecord("has a `bytes` that is not a list of bytes") from None
    else:
        found = as_id(entry.text("token"))
    return found if isinstance(found, int) else str(found)


def _engine_rows(meta: Record) -> Record:
    """Return the logprobs and the IDs in SGLang's own rows."""
    name = "output_token_logprobs"
    rows = meta.get(name) or []
    if not isinstance(rows, list) or not all(
        isinstance(row, list) and len(row) > 1 for row in rows
    ):
        raise BadRecord(f"has a `{name}` that is no list of [logprob, ID, text]")
    if not rows:
        return Record({})
    columns = {"logprobs": [row[0] for row in rows], "ids": [row[1] for row in rows]}
    return Record(columns, f"{meta.name}.{name}[]")


def spans(holder: Record) -> tuple[Span, ...]:
    """Return the spans of weight versions, in SGLang's form."""
    return tuple(
        Span(str(span.get("version")), span.count("start") or 0, span.count("end"))
        for span in holder.objs("weight_versions")
    )


def _joined_spans(starts: Iterable[tuple[Any, int]]) -> tuple[Span, ...]:
    """Return spans from the versions of chunks, and the positions where these start."""
    found: list[Span] = []
    for version, start in starts:
        if version is None or (found and found[-1].version == str(version)):
            continue
        if found:
            found[-1] = Span(found[-1].version, found[-1].start, start)
        found.append(Span(str(version), start))
    return tuple(found)


def versions_of(metadata: Record) -> tuple[Span, ...]:
    version = metadata.get("weight_version")
    return spans(metadata) or (() if version is None else (Span(str(version), 0),))
