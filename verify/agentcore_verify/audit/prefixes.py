"""Compare the prompt of each turn with the tokens of the previous turn."""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from dataclasses import dataclass

from ..differences import first_difference
from .tokens import BROKEN, Tokens
from .turns import Answer, History, Turn

BYTES_KEPT = 64 * 2**20
"""Size limit of the kept turns; the least recently used sessions are dropped first."""

TURNS_KEPT = 32
"""Maximum number of answers kept per session."""

_ID_BYTES = array("i").itemsize

_TURN_BYTES = 1024
"""Bytes of a kept turn beside its token IDs, generously."""

_AROUND = 12
"""Tokens that an example shows on each side of the first difference."""


@dataclass(frozen=True)
class _Kept:
    """The tokens of a turn, up to the end of one answer; `prompt` of them are its prompt."""

    ids: array[int]
    prompt: int
    history: History | None
    has_reasoning: bool
    has_calls: bool
    was_cut: bool

    @property
    def size(self) -> int:
        """The bytes that the turn takes."""
        return len(self.ids) * _ID_BYTES + _TURN_BYTES


class Prefixes:
    """The turns of the last sessions, and the counts of their comparisons."""

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens
        self._bytes = 0
        self._sessions: OrderedDict[object, deque[_Kept]] = OrderedDict()
        self.compared = 0
        self.unmatched = 0
        """Number of turns whose previous turn is not kept or was not recorded."""

    def add(self, turn: Turn, source: str) -> tuple[str, str] | None:
        """Keep a turn; return where and why it leaves the previous one of its source."""
        if not turn.prompt:
            return None
        prompt = array("i", turn.prompt)
        found = None
        if before := self._turn_before(turn, prompt, source):
            self.compared += 1
            if not self._continues(prompt, before):
                found = self._break(turn, prompt, before)
        elif turn.history and turn.history.answers and turn.session:
            self.unmatched += 1
        for answer in turn.answers:
            if answer.ids:
                self._keep(turn, prompt, answer, source)
        return found

    def _turn_before(self, turn: Turn, prompt: array[int], source: str) -> _Kept | None:
        """The kept answer that a turn continues; None if it starts a conversation."""
        now = turn.history
        if now is None:
            kept = (
                self._sessions.get((source, turn.session), ()) if turn.session else ()
            )
            found = [
                one
                for one in kept
                if len(prompt) > one.prompt
                and prompt[: one.prompt] == one.ids[: one.prompt]
            ]
            return max(
                found, key=lambda one: first_difference(prompt, one.ids), default=None
            )
        if not now.answers:
            return None
        earlier = [
            (one, then)
            for one in self._sessions.get(_key(turn, source, now.inputs_before), ())
            if (then := one.history) and then.answers < now.answers
        ]
        last = max((then.answers for _, then in earlier), default=0)
        exact = [one for one, then in earlier if then.inputs == now.inputs_before]
        nearest = [one for one, then in earlier if then.answers == last]
        # Of several equal answers, take the last.
        return max(
            reversed(exact or nearest),
            key=lambda one: first_difference(prompt, one.ids),
            default=None,
        )

    def _keep(
        self, turn: Turn, prompt: array[int], answer: Answer, source: str
    ) -> None:
        kept = _Kept(
            ids=prompt + array("i", answer.ids or ()),
            prompt=len(prompt),
            history=turn.history,
            has_reasoning=bool(answer.reasoning) or "</think>" in answer.text,
            has_calls=bool(answer.calls),
            was_cut=answer.was_cut,
        )
        key = _key(turn, source, turn.history.inputs if turn.history else None)
        session = self._sessions.setdefault(key, deque())
        self._sessions.move_to_end(key)
        session.append(kept)
        self._bytes += kept.size
        if len(session) > TURNS_KEPT:
            self._bytes -= session.popleft().size
        while self._bytes > BYTES_KEPT and len(self._sessions) > 1:
            _, gone = self._sessions.popitem(last=False)
            self._bytes -= sum(one.size for one in gone)

    def _continues(self, prompt: array[int], before: _Kept) -> bool:
        """True if a prompt starts with the tokens of a turn.

        A template may close the turn with another token than the sampled stop token.
        """
        ids = before.ids
        start = prompt[: len(ids)]
        if start == ids:
            return True
        if before.was_cut or len(start) < len(ids) or start[:-1] != ids[:-1]:
            return False
        ends = (ids[-1], start[-1])
        return self._tokens is None or all(map(self._tokens.is_special, ends))

    def _break(self, turn: Turn, prompt: array[int], before: _Kept) -> tuple[str, str]:
        expected, tokens = before.ids, self._tokens
        at = first_difference(prompt, expected)
        why = self._why(turn, prompt, before, at)
        place = f"differs after {at} of {len(expected)} tokens:"
        if tokens is None:
            sides = (ids[at : at + 4].tolist() for ids in (expected, prompt))
            return "{} {}, the prompt has {}".format(place, *sides), why
        lead, here, there = (
            tokens.decode(ids)
            for ids in (
                expected[max(at - _AROUND, 0) : at],
                expected[at : at + _AROUND],
                prompt[at : at + _AROUND],
            )
        )
        return f"{place} after {lead!r} come {here!r}, the prompt has {there!r}", why

    def _why(self, turn: Turn, prompt: array[int], before: _Kept, at: int) -> str:
        now, then, tokens = turn.history, before.history, self._tokens
        if now and then and at < before.prompt:
            if now.tools != then.tools:
                return "tools changed"
            if now.system != then.system:
                return "system prompt changed"
        if at >= len(prompt):
            return "history cut"
        after, other = (
            tokens.decode(ids[at : at + 2 * _AROUND]) if tokens else ""
            for ids in (before.ids, prompt)
        )
        if tokens and _is_same_text(after, other):
            return "text tokenized again"
        if before.has_reasoning and not (now and now.reasons):
            return "thinking dropped"
        both = (before.ids[at], prompt[at])
        if (tokens and all(map(tokens.is_special, both))) or _is_separator(
            after, other
        ):
            return "separator"
        if before.has_calls and at >= before.prompt:
            return "tool call reformatted"
        return "history changed" if tokens else "unknown without --tokenizer"


def _key(turn: Turn, source: str, inputs: bytes | None) -> object:
    """Return the session of a turn; without one, a digest of the messages to the model."""
    return source, turn.session if turn.session is not None else inputs


def _is_same_text(left: str, right: str) -> bool:
    """True if two texts have the same start; their ends may be parts of characters."""
    left, right = left.rstrip(BROKEN), right.rstrip(BROKEN)
    shorter = min(len(left), len(right))
    return left[:shorter] == right[:shorter]


def _is_separator(left: str, right: str) -> bool:
    """True if two texts differ in the whitespace that they start with."""
    if not (left[:1].isspace() or right[:1].isspace()):
        return False
    return _is_same_text(left.lstrip(), right.lstrip())
