"""Invariants of every response with token IDs, and of two responses to a question."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentcore_patches.patches import registry

from .client import Completion, Json, Piece
from .differences import first_difference, text_difference
from .profiles import STOPS, first_at
from .results import Failed, Skipped
from .subject import LOGPROBS, NO_STREAMS, Exchange, Subject

_UNREADABLE = re.compile(r"[\s\ufffd]")
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")


def assert_whole(subject: Subject, reply: Exchange) -> None:
    """Raise Failed unless the answer has all its token IDs, each in the right place.

    That is: no error event; `prompt_token_ids` on the first event and no other; the
    `token_ids` of a choice decode to its text, and no chunk has text whose IDs come
    later; as many IDs as `usage` counts, including the stop token; and, if logprobs were
    requested, one for each ID of the same chunk. Where nothing can be decoded, texts are
    not compared.
    """
    assert_no_error(reply)
    with subject.rule(3):
        _assert_prompt(subject, reply)
    with subject.rule(6):
        choices, n = [one.index for one in reply.completions], reply.body.get("n", 1)
        if choices != [*range(n)]:
            raise Failed(
                f"{reply.where}: the answer has choices {choices}, but n is {n}."
            )
    for completion in reply.completions:
        with subject.rule(1):
            where = f"{reply.where}: token_ids of choice {completion.index}"
            _assert_are_ids(where, reply.ids(completion.index))
            _Choice(subject, reply, completion).assert_text()
        if reply.body.get("logprobs"):
            with subject.rule(11):
                assert_logprobs_aligned(reply, completion)
    with subject.rule(2):
        n_ids = sum(len(one.token_ids or ()) for one in reply.completions)
        _assert_count(reply, "token_ids", n_ids, "completion_tokens")


def assert_prefix(subject: Subject, question: str, reply: Exchange) -> None:
    """Raise Failed unless the IDs of an aborted answer are the first IDs of the whole one.

    An aborted answer that ignores its end may be longer than the whole one: it is
    compared with one of its own length.
    """
    ids, whole = reply.completions[0].token_ids or (), subject.reference(question)
    if len(ids) > len(whole.ids()):
        length = {"ignore_eos": True, "max_tokens": len(ids)}
        whole = subject.reference(question, **length)
    assert_first(subject, reply.where, ids, whole)


def assert_first(
    subject: Subject, what: str, ids: Sequence[int], whole: Exchange
) -> None:
    """Raise Failed unless these are the first IDs of the whole answer."""
    subject.assert_ids(
        f"{what}: token_ids are not the first ones of the whole answer.",
        *("whole answer", whole.ids()[: len(ids)], "seen", ids),
        known=whole,
    )


def assert_same(subject: Subject, one: Exchange, other: Exchange) -> None:
    """Raise Failed unless prompt and completion IDs are equal, choice by choice."""
    with subject.rule(4):
        prompts = [reply.answer.prompt_token_ids or () for reply in (one, other)]
        subject.assert_ids(
            f"{other.where}: prompt_token_ids differ from those of {one.where}.",
            *(one.where, prompts[0], other.where, prompts[1]),
            known=one,
        )
        choices = [completion.index for completion in one.completions]
        others = [completion.index for completion in other.completions]
        if choices != others:
            raise Failed(
                f"{other.where}: the answer has choices {others}, {one.where} has {choices}."
            )
        for a, b in zip(one.completions, other.completions, strict=True):
            left, right = one.ids(a.index), other.ids(b.index)
            subject.assert_ids(
                f"{other.where}: token_ids of choice {b.index} differ from those of "
                f"{one.where} from position {first_difference(left, right)} on.",
                *(one.where, left, other.where, right),
                known=one,
            )
            if finish(a) != finish(b):
                subject.assert_still(one)
                raise Failed(
                    f"{other.where}: finish_reason of choice {b.index} is "
                    f"{b.finish_reason!r}, but {a.finish_reason!r} in {one.where}."
                )


def both_modes(
    subject: Subject, question: str, **more: Any
) -> tuple[Exchange, Exchange]:
    """Return the answers in both modes; raise Failed unless they are whole and equal.

    Where streams have no IDs, the non-streaming answer is both.
    """
    whole = subject.reference(question, **more)
    assert_whole(subject, whole)
    if not subject.profile.streams:
        for number in (4, 5):
            with subject.rule(number):
                raise Skipped(NO_STREAMS)
        return whole, whole
    streamed = subject.stream(question, **LOGPROBS, **more)
    assert_same(subject, whole, streamed)
    assert_whole(subject, streamed)
    return whole, streamed


def finish(completion: Completion) -> str | None:
    """The finish_reason, with `tool_calls` as `stop`.

    With streaming, v0.5.9's parsers miss tool calls that arrive in one chunk.
    """
    reason = completion.finish_reason
    return "stop" if reason == "tool_calls" else reason


def comparable_text(text: str) -> str:
    """Return the characters that every way of decoding the same IDs gives.

    Whitespace: some tokenizers drop it at the beginning or before punctuation.
    Replacement characters: they stand for an incomplete UTF-8 sequence.
    """
    return _UNREADABLE.sub("", text)


def is_in_order(part: str, whole: str) -> bool:
    """True if the characters of `part` are a subsequence of those of `whole`."""
    characters = iter(whole)
    return all(character in characters for character in part)


def assert_no_error(reply: Exchange) -> None:
    for error in reply.answer.errors:
        raise Failed(f"{reply.where}: the stream has an error event: {error['error']}")


def assert_logprobs_aligned(reply: Exchange, completion: Completion) -> None:
    """Raise Failed unless each chunk of a choice has a logprob for each token ID."""
    for piece in completion.pieces:
        place = f"chunk {piece.position}" if reply.streamed else "the answer"
        where = f"{reply.where}: choice {completion.index}: {place}"
        assert_aligned(where, piece.token_ids, piece.logprobs)


def assert_aligned(
    where: str, ids: Sequence[int] | None, logprobs: Sequence[object] | None
) -> None:
    n_ids, n_logprobs = len(ids or ()), len(logprobs or ())
    if n_ids != n_logprobs:
        raise Failed(f"{where} has {n_ids} token_ids but {n_logprobs} logprobs.")


def assert_input_ids(subject: Subject, reply: Exchange) -> None:
    asked = tuple(reply.body["input_ids"])
    subject.assert_ids(
        f"{reply.where}: prompt_token_ids differ from the input_ids of the request.",
        *("input_ids", asked, "prompt_token_ids", reply.prompt_ids),
    )


def assert_no_new_fields(subject: Subject, where: str, answers: Sequence[Json]) -> None:
    if found := sorted(_keys_in(answers) & registry.response_fields()):
        raise Failed(f"{where}: the answer has {', '.join(found)}.")
    for answer in answers:
        if found := sorted({*(answer.get("metadata") or ())} - subject.metadata()):
            raise Failed(f"{where}: the answer's metadata has {', '.join(found)}.")


def _keys_in(value: object) -> set[str]:
    """Return the keys of all objects in a JSON value.

    Not those inside `metadata`, nor inside `logprobs`, where completions have
    `token_logprobs` of their own.
    """
    if isinstance(value, dict):
        parts = (
            part for key, part in value.items() if key not in ("metadata", "logprobs")
        )
        return set(value) | {key for part in parts for key in _keys_in(part)}
    if isinstance(value, list | tuple):
        return {key for part in value for key in _keys_in(part)}
    return set()


def _assert_prompt(subject: Subject, reply: Exchange) -> None:
    ids = reply.prompt_ids
    # A gateway may ask for the prompt's IDs on each choice.
    if subject.is_routed or not subject.is_patched:
        found = set(map(subject.profile.prompt_of, reply.answer.events)) - {None}
        if len(found) > 1:
            raise Failed(f"{reply.where}: the prompt's IDs differ between chunks.")
    elif reply.answer.prompt_positions != (0,):
        places = ", ".join(map(str, reply.answer.prompt_positions[:5]))
        raise Failed(
            f"{reply.where}: prompt_token_ids are on chunk {places} (counted from 0), "
            "but must be on the first chunk only."
        )
    _assert_are_ids(f"{reply.where}: prompt_token_ids", ids)
    if "input_ids" in reply.body:
        assert_input_ids(subject, reply)
    elif subject.can_decode:
        asked = reply.body["messages"][-1]["content"]
        prompt = subject.decode(ids, special=True)
        if comparable_text(asked) not in comparable_text(prompt):
            raise Failed(
                f"{reply.where}: prompt_token_ids do not decode to the prompt: the "
                f"question {asked!r} is not in {prompt[-200:]!r}."
            )
    if reply.answer.usage:
        _assert_count(reply, "prompt_token_ids", len(ids), "prompt_tokens")


def _assert_are_ids(what: str, ids: tuple[int, ...]) -> None:
    for position, value in enumerate(ids):
        if type(value) is not int or value < 0:
            raise Failed(f"{what}: {value!r} at position {position} is not a token ID.")


@dataclass(frozen=True)
class _Choice:
    """A choice of an answer, whose token IDs are compared with its text."""

    subject: Subject
    reply: Exchange
    completion: Completion

    @property
    def stop(self) -> Any:
        """The stop string or the stop token, if the server names one."""
        return first_at(self.completion.raw, STOPS)

    def assert_text(self) -> None:
        subject, reply, completion = self.subject, self.reply, self.completion
        ids = completion.token_ids or ()
        if type(self.stop) is int and (not ids or ids[-1] != self.stop):
            raise Failed(
                f"{reply.where}: choice {completion.index} was stopped by token "
                f"{self.stop}, but its token_ids end with {list(ids[-3:])}."
            )
        if not subject.can_decode:
            raise Skipped("Nothing here decodes token IDs, so texts are not compared.")
        separates = reply.body.get("separate_reasoning", subject.is_patched)
        if completion.reasoning_content or separates or reply.body.get("tools"):
            decoded = subject.decode(ids, special=True)
            text = "".join(map(_text_of, completion.pieces))
            # A parser may have split the text, or added some; then the text of a chunk
            # does not show its IDs.
            if is_in_order(_words(text), _words(decoded)):
                self._assert_no_text_ahead(special=True, parsed=True)
            return
        if self._ends_with_stop_token():
            ids = ids[:-1]  # It has no text.
        for special in (False, True):  # Some models' text has special tokens in it.
            if self._is_text(subject.decode(ids, special=special)):
                self._assert_no_text_ahead(special=special)
                return
        decoded = subject.decode(ids)
        if not self._is_wrong_in_vanilla(decoded):
            raise Failed(
                f"{reply.where}: token_ids of choice {completion.index} do not decode to "
                "its text.",
                difference=text_difference(
                    "decoded", decoded, "text", completion.content
                ),
            )

    def _ends_with_stop_token(self) -> bool:
        if self.subject.is_patched or self.stop is not None:
            return type(self.stop) is int
        # vLLM does not name EOS.
        return self.completion.finish_reason in ("stop", "tool_calls")

    def _is_text(self, decoded: str) -> bool:
        decoded = comparable_text(decoded)
        content = comparable_text(self.completion.content)
        if not isinstance(self.stop, str) or self.reply.body.get("no_stop_trim"):
            return decoded == content
        # The IDs include the stop string, the text does not.
        rest = decoded.removeprefix(content)
        return decoded.startswith(content) and comparable_text(self.stop) in rest

    def _is_wrong_in_vanilla(self, decoded: str) -> bool:
        """True if the IDs are right and stock SGLang streams the same wrong text.

        SGLang repeats Chinese characters with --stream-interval.
        """
        subject, reply, completion = self.subject, self.reply, self.completion
        if not (reply.streamed and subject.is_patched):
            return False
        known = comparable_text(decoded)
        if reply.body["temperature"]:
            # Another answer would have another text.
            return _without_repeats(completion, known) == known
        without_ids = {**reply.body, "return_token_ids": False}
        unpatched = subject.send(without_ids, reply.where)
        whole = subject.send({**without_ids, "stream": False}, reply.where)
        return any(
            one.content == completion.content
            and comparable_text(other.content) == known
            for one, other in zip(
                unpatched.completions, whole.completions, strict=False
            )
            if one.index == completion.index
        )

    def _assert_no_text_ahead(self, *, special: bool, parsed: bool = False) -> None:
        """Raise Failed if a chunk of a stream has text whose IDs come in a later one.

        `special`: the text includes special tokens; `parsed`: a parser may have split it.
        """
        if not self.reply.streamed:
            return
        so_far: list[tuple[Piece, str, tuple[int, ...]]] = []
        text, ids = "", tuple[int, ...]()
        for piece in self.completion.pieces:
            ids += piece.token_ids or ()
            if new_text := _text_of(piece):
                text += new_text
                so_far.append((piece, text, ids))
        with self.subject.rule(5):
            decoded = self.subject.decode_all(
                [ids for _, _, ids in so_far], special=special
            )
            for (piece, text, _), known in zip(so_far, decoded, strict=True):
                has_its_ids = (
                    is_in_order(_words(text), _words(known))
                    if parsed
                    else comparable_text(known).startswith(comparable_text(text))
                )
                if not has_its_ids:
                    raise Failed(
                        f"{self.reply.where}: chunk {piece.position} of the stream has "
                        "text whose token_ids are not on this or an earlier chunk, or "
                        "not in order.",
                        difference=text_difference(
                            "decoded so far", known[-40:], "text so far", text[-40:]
                        ),
                    )


def _without_repeats(completion: Completion, decoded: str) -> str:
    """Return the comparable text of a stream, without characters that SGLang sent twice.

    Its detokenizer sends Chinese characters before half a character. If more halves
    follow, it begins the next chunk with the same characters again.
    """
    text = ""
    for piece in completion.pieces:
        new = comparable_text(piece.content)
        rests = (
            new[length:]
            for length in range(len(new) + 1)
            if _is_chinese_end(new[:length]) and text.endswith(new[:length])
        )
        text += next((rest for rest in rests if decoded.startswith(text + rest)), new)
    return text


def _is_chinese_end(text: str) -> bool:
    return not text or unicodedata.name(text[-1], "").startswith("CJK ")


def _text_of(piece: Piece) -> str:
    """All text of a chunk, including reasoning and tool calls."""
    functions = [call.get("function") or {} for call in piece.tool_calls]
    calls = [
        (function.get("name") or "") + (function.get("arguments") or "")
        for function in functions
    ]
    return piece.reasoning_content + piece.content + "".join(calls)


def _words(text: str) -> str:
    """Keep only letters and digits, which all notations of a tool call have in common."""
    plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
    return "".join(filter(str.isalnum, plain))


def _assert_count(reply: Exchange, what: str, n_ids: int, key: str) -> None:
    usage = reply.answer.usage
    if usage is None:
        raise Skipped(f"{reply.where}: the answer has no usage.")
    if n_ids != usage[key]:
        raise Failed(
            f"{reply.where}: the answer has {n_ids} {what}, but usage counts "
            f"{usage[key]} tokens."
        )
