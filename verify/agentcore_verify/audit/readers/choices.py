"""Chat completions and completions, streamed or not; SGLang's and vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...profiles import PROMPT, RECORDED_IDS, as_id, first_at
from ..turns import Answer, History, Json, Span, Turn
from . import fields
from .fields import BadRecord, count, ids, number, numbers, obj, objs, text

T = TypeVar("T")


@dataclass
class _Choice:
    """A choice, joined from its chunks; a whole answer is one chunk."""

    text: str = ""
    reasoning: str = ""
    calls: list[Json] = field(default_factory=list)
    streamed: bool = False
    ids: list[int] | None = None
    prompt: list[int] | None = None
    logprobs: list[float | None] | None = None
    flat: list[float | None] | None = None
    pieces: list[str] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    finish: str = ""
    spans: tuple[Span, ...] = ()
    versions: list[tuple[str, int]] = field(default_factory=list)
    meta: Json = field(default_factory=dict)

    def add(self, choice: Json) -> None:
        message = obj(choice.get("message"), "choices[].message")
        self.streamed = self.streamed or not message
        part = message or obj(choice.get("delta"), "choices[].delta")
        self.text += fields.content(part.get("content"), "content")
        self.text += text(choice.get("text"), "choices[].text")
        self.reasoning += fields.reasoning(part, "choices")
        self.calls += objs(part.get("tool_calls"), "tool_calls")
        self.finish = str(choice.get("finish_reason") or self.finish)
        self.ids = _joined(self.ids, _ids_of(choice))
        if self.prompt is None:
            self.prompt = ids(choice.get(PROMPT), f"choices[].{PROMPT}")
        self.spans = self.spans or spans(choice.get("weight_versions"))
        self.meta = obj(choice.get("meta_info"), "choices[].meta_info") or self.meta
        if choice.get("logprobs"):
            self._add_logprobs(obj(choice["logprobs"], "choices[].logprobs"))
        name = "choices[].token_logprobs"
        self.flat = _joined(self.flat, numbers(choice.get("token_logprobs"), name))

    def _add_logprobs(self, logprobs: Json) -> None:
        flat = numbers(logprobs.get("token_logprobs"), "token_logprobs")
        if flat is not None:
            self._logprobs().extend(flat)
            tokens = logprobs.get("tokens")
            found = tokens if isinstance(tokens, list) else []
            self._add_pieces([str(token) for token in found])
            return
        if logprobs.get("content") is None:
            return
        entries = objs(logprobs["content"], "logprobs.content")
        name = "logprobs.content[].logprob"
        found = [number(entry.get("logprob"), name) for entry in entries]
        self._logprobs().extend(found)
        for entry in entries:
            if type(entry.get("token_id")) is int:
                self.named.append(entry["token_id"])
            else:
                self._add_pieces([_piece(entry)])

    def _logprobs(self) -> list[float | None]:
        self.logprobs = [] if self.logprobs is None else self.logprobs
        return self.logprobs

    def _add_pieces(self, pieces: list[str]) -> None:
        for piece in pieces:
            found = as_id(piece)
            (self.pieces if found == piece else self.named).append(found)

    def answer(self, metadata: Json, tokens: int | None, prompt_tokens: int) -> Answer:
        """Return the whole choice. `prompt_tokens` logprobs of an echoed prompt come first."""
        logprobs, found = self.logprobs, self.ids
        calls = fields.streamed_calls if self.streamed else fields.calls
        pieces, named = self.pieces, self.named
        if engine := self.meta.get("output_token_logprobs"):
            of_engine = _engine_logprobs(engine)
            if logprobs is None:
                logprobs = [logprob for logprob, _ in of_engine]
            if found is None:
                found = [token for _, token in of_engine]
        if logprobs is not None and prompt_tokens:
            logprobs = logprobs[prompt_tokens:]
            pieces, named = pieces[prompt_tokens:], named[prompt_tokens:]
        if self.flat is not None:
            logprobs = self.flat
        if found is None and named and not pieces:
            found = named
        return Answer(
            text=self.text,
            reasoning=self.reasoning,
            calls=calls(self.calls, "tool_calls"),
            ids=found,
            logprobs=logprobs,
            pieces=pieces or None,
            named=named or None,
            tokens=tokens,
            finish=self.finish,
            versions=self._versions(metadata),
        )

    def _versions(self, metadata: Json) -> tuple[Span, ...]:
        found = (
            self.spans
            or spans(self.meta.get("weight_versions"))
            or spans(metadata.get("weight_versions"))
        )
        if found or self.versions:
            return found or joined_spans(self.versions)
        return one_span(self.meta.get("weight_version"))


def turns(request: Json, events: list[Json], session: str | None) -> list[Turn]:
    """Return the turn of an answer or a stream; one for each prompt of completions."""
    choices: dict[int, _Choice] = {}
    prompt, usage, metadata = None, Json(), Json()
    for event in events:
        prompt = prompt or ids(event.get(PROMPT), PROMPT)
        usage = obj(event.get("usage"), "usage") or usage
        metadata_of_event = obj(event.get("metadata"), "metadata")
        metadata = {**metadata, **metadata_of_event}
        version = metadata_of_event.get("weight_version") or event.get("weight_version")
        found = objs(event.get("choices"), "choices")
        for position, part in enumerate(found):
            index = count(part.get("index"), "choices[].index")
            choice = choices.setdefault(position if index is None else index, _Choice())
            start = len(choice.ids or ())
            choice.add(part)
            if version is not None:
                choice.versions.append((str(version), start))
    if not choices:
        raise BadRecord("has an answer without `choices`")
    tokens = count(usage.get("completion_tokens"), "usage.completion_tokens")
    history = _history(request)
    stops = fields.strings(request.get("stop"), "request.stop")
    by_prompt: list[tuple[list[int] | None, list[Answer]]] = []
    for choice in choices.values():
        own = choice.prompt or prompt
        if not by_prompt or by_prompt[-1][0] != own:
            by_prompt.append((own, []))
        echoed = len(own or ()) if request.get("echo") else 0
        counted = tokens if len(choices) == 1 else None
        by_prompt[-1][1].append(choice.answer(metadata, counted, echoed))
    shape = "completions" if history is None else "chat"
    return [
        Turn(shape, session, history, own, tuple(answers), stops)
        for own, answers in by_prompt
    ]


def _history(request: Json) -> History | None:
    if request.get("messages") is None:
        return None
    return History.of(
        fields.chat(request["messages"], "request.messages"), request.get("tools")
    )


def _ids_of(choice: Json) -> list[int] | None:
    return ids(first_at(choice, RECORDED_IDS), "choices[].token_ids")


def _joined(before: list[T] | None, new: list[T] | None) -> list[T] | None:
    if new is None:
        return before
    before = [] if before is None else before
    before.extend(new)
    return before


def _piece(entry: Json) -> str:
    """Return the text of a token; `bytes` also has incomplete characters."""
    value = entry.get("bytes")
    if isinstance(value, list) and all(type(one) is int for one in value):
        try:
            return bytes(value).decode("utf-8", "replace")
        except ValueError:
            raise BadRecord("has a `bytes` that is not a list of bytes") from None
    return text(entry.get("token"), "logprobs.content[].token")


def _engine_logprobs(value: Any) -> list[tuple[float | None, int]]:
    name = "meta_info.output_token_logprobs"
    if not isinstance(value, list):
        raise BadRecord(f"has a `{name}` that is not a list")
    found = []
    for row in value:
        if not isinstance(row, list) or len(row) < 2:
            raise BadRecord(f"has a `{name}` whose rows are not [logprob, ID, text]")
        [token] = ids([row[1]], name) or [0]
        found.append((number(row[0], name), token))
    return found


def spans(value: Any) -> tuple[Span, ...]:
    """Return the spans of weight versions, in SGLang's form."""
    return tuple(
        Span(
            str(span.get("version")),
            count(span.get("start"), "weight_versions[].start") or 0,
            count(span.get("end"), "weight_versions[].end"),
        )
        for span in objs(value, "weight_versions")
    )


def joined_spans(starts: list[tuple[str, int]]) -> tuple[Span, ...]:
    """Return spans from the versions of chunks, and the positions where these start."""
    found: list[Span] = []
    for version, start in starts:
        if found and found[-1].version == version:
            continue
        if found:
            found[-1] = Span(found[-1].version, found[-1].start, start)
        found.append(Span(version, start))
    return tuple(found)


def versions_of(metadata: Json) -> tuple[Span, ...]:
    return spans(metadata.get("weight_versions")) or one_span(
        metadata.get("weight_version")
    )


def one_span(version: Any) -> tuple[Span, ...]:
    return () if version is None else (Span(str(version), 0),)
