"""Compare the prompt of each turn with the tokens of the previous turn."""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from .tokens import BROKEN, Tokens
from .turns import Answer, History, Turn

BYTES_KEPT = 64 * 2**20
"""Size limit of the kept turns; the least recently used sessions are dropped first."""

TURNS_KEPT = 32
"""Maximum number of answers kept per session."""

_ID_BYTES = 4

_TURN_BYTES = 1024
"""Bytes of a kept turn beside its token IDs, generously."""

_AROUND = 12
"""Tokens that an example shows on each side of the first difference."""


@dataclass(frozen=True)
class _Kept:
    """The tokens of a turn, up to the end of one answer.

    `ids` has `_ID_BYTES` bytes for each token, of which the prompt has `prompt`.
    """

    ids: bytes
    prompt: int
    history: History | None
    has_reasoning: bool
    has_calls: bool
    was_cut: bool

    @property
    def size(self) -> int:
        """The bytes that the turn takes."""
        return len(self.ids) + _TURN_BYTES


@dataclass(frozen=True)
class Break:
    """The place where a prompt leaves the tokens of the previous turn."""

    why: str
    seen: str


class Prefixes:
    """The turns of the last sessions, and the counts of their comparisons."""

    def __init__(self, tokens: Tokens | None, bytes_kept: int | None = None) -> None:
        self._tokens = tokens
        self._bytes_kept = BYTES_KEPT if bytes_kept is None else bytes_kept
        self._bytes = 0
        self._sessions: OrderedDict[object, deque[_Kept]] = OrderedDict()
        self.compared = 0
        self.unmatched = 0
        """Number of turns whose previous turn is not kept or was not recorded."""

    def add(self, turn: Turn, source: str) -> Break | None:
        """Compare a turn with the previous one in its source, and keep it."""
        if not turn.prompt:
            return None
        prompt = _packed(turn.prompt)
        found = None
        if before := self._turn_before(turn, prompt, source):
            self.compared += 1
            if not _continues(prompt, before, self._tokens):
                found = self._break(turn, prompt, before)
        elif turn.history and turn.history.answers and turn.session:
            self.unmatched += 1
        inputs = turn.history.inputs if turn.history else None
        for answer in turn.answers:
            if answer.ids:
                self._keep(_key(turn, source, inputs), _kept(turn, prompt, answer))
        return found

    def _turn_before(self, turn: Turn, prompt: bytes, source: str) -> _Kept | None:
        """The kept answer that a turn continues; None if it starts a conversation."""
        if turn.history is None:
            kept = self._sessions.get((source, turn.session)) if turn.session else None
            found = [
                one
                for one in kept or ()
                if len(prompt) > one.prompt * _ID_BYTES
                and prompt.startswith(one.ids[: one.prompt * _ID_BYTES])
            ]
            return max(found, key=lambda one: _shared(prompt, one.ids), default=None)
        if not turn.history.answers:
            return None
        kept = self._sessions.get(_key(turn, source, turn.history.inputs_before))
        earlier = [
            one
            for one in kept or ()
            if one.history and one.history.answers < turn.history.answers
        ]
        last = max((one.history.answers for one in earlier if one.history), default=0)
        exact = [
            one
            for one in earlier
            if one.history and one.history.inputs == turn.history.inputs_before
        ]
        nearest = [
            one for one in earlier if one.history and one.history.answers == last
        ]
        # Of several equal answers, take the last.
        return max(
            reversed(exact or nearest),
            key=lambda one: _shared(prompt, one.ids),
            default=None,
        )

    def _keep(self, key: object, kept: _Kept) -> None:
        session = self._sessions.setdefault(key, deque())
        self._sessions.move_to_end(key)
        session.append(kept)
        self._bytes += kept.size
        if len(session) > TURNS_KEPT:
            self._bytes -= session.popleft().size
        while self._bytes > self._bytes_kept and len(self._sessions) > 1:
            _, gone = self._sessions.popitem(last=False)
            self._bytes -= sum(one.size for one in gone)

    def _break(self, turn: Turn, prompt: bytes, before: _Kept) -> Break:
        at = _shared(prompt, before.ids)
        expected, got = _unpacked(before.ids), _unpacked(prompt)
        why = _why(turn, before, at, expected, got, self._tokens)
        total = len(expected)
        if self._tokens is None:
            seen = f"{expected[at : at + 4]}, the prompt has {got[at : at + 4]}"
            return Break(why, f"differs after {at} of {total} tokens: {seen}")
        decode = self._tokens.decode
        lead = decode(expected[max(at - _AROUND, 0) : at])
        return Break(
            why,
            f"differs after {at} of {total} tokens: after {lead!r} come "
            f"{decode(expected[at : at + _AROUND])!r}, the prompt has "
            f"{decode(got[at : at + _AROUND])!r}",
        )


def _packed(ids: Sequence[int]) -> bytes:
    return array("i", ids).tobytes()


def _unpacked(packed: bytes) -> list[int]:
    return array("i", packed).tolist()


def _key(turn: Turn, source: str, inputs: bytes | None) -> object:
    """Return the session of a turn; without one, a digest of the messages to the model."""
    return source, turn.session if turn.session is not None else inputs


def _kept(turn: Turn, prompt: bytes, answer: Answer) -> _Kept:
    return _Kept(
        ids=prompt + _packed(answer.ids or ()),
        prompt=len(turn.prompt or ()),
        history=turn.history,
        has_reasoning=bool(answer.reasoning) or "</think>" in answer.text,
        has_calls=bool(answer.calls),
        was_cut=answer.was_cut,
    )


def _shared(left: bytes, right: bytes) -> int:
    """Return the number of tokens that both have in common at their start."""
    low, high = 0, min(len(left), len(right)) // _ID_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        part = slice(low * _ID_BYTES, middle * _ID_BYTES)
        if left[part] == right[part]:
            low = middle
        else:
            high = middle - 1
    return low


def _continues(prompt: bytes, before: _Kept, tokens: Tokens | None) -> bool:
    """True if a prompt starts with the tokens of a turn.

    A template may close the turn with another token than the sampled stop token.
    """
    if prompt.startswith(before.ids):
        return True
    end = len(before.ids) - _ID_BYTES
    if before.was_cut or len(prompt) <= end or not prompt.startswith(before.ids[:end]):
        return False
    pair = _unpacked(before.ids[end:] + prompt[end : end + _ID_BYTES])
    return tokens is None or all(map(tokens.is_special, pair))


def _why(
    turn: Turn,
    before: _Kept,
    at: int,
    expected: list[int],
    got: list[int],
    tokens: Tokens | None,
) -> str:
    now, then = turn.history, before.history
    if now and then and at < before.prompt:
        if now.tools != then.tools:
            return "tools changed"
        if now.system != then.system:
            return "system prompt changed"
    if at >= len(got):
        return "history cut"
    after, other = (
        tokens.decode(ids[at : at + 2 * _AROUND]) if tokens else ""
        for ids in (expected, got)
    )
    if tokens and _is_same_text(after, other):
        return "text tokenized again"
    if before.has_reasoning and not (now and now.reasons):
        return "thinking dropped"
    both_special = tokens and all(map(tokens.is_special, (expected[at], got[at])))
    if both_special or _is_separator(after, other):
        return "separator"
    if before.has_calls and at >= before.prompt:
        return "tool call reformatted"
    return "history changed" if tokens else "unknown without --tokenizer"


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
