"""Compare an answer's token IDs with its text, decoded and tokenized again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..differences import first_difference
from .tokens import BROKEN, Tokens
from .turns import Answer

Item = TypeVar("Item")

SHOWN = 40
"""Number of characters of a text that an example shows."""


@dataclass(frozen=True)
class Drift:
    """The difference between an answer's tokens and the tokens of its text.

    Attributes:
        tokens: the number of tokens that were compared.
        differing: how many of these the text does not give again.
        cause: why; empty if none differs.
        seen: the tokens on both sides.
        finding: `drift`, or `text-differs` if the IDs do not decode to the text.
    """

    tokens: int
    differing: int = 0
    cause: str = ""
    seen: str = ""
    finding: str = ""


class TextDiffers(Exception):
    """The IDs do not decode to the recorded text; the message shows the difference."""


def compare(answer: Answer, stops: Sequence[str], tokens: Tokens) -> Drift | None:
    """Compare the IDs with the IDs of the text, if recorded."""
    if answer.ids:
        body = tokens.without_end(answer.ids)
        try:
            again, cause = _text_to_tokenize(answer, body, stops, tokens)
        except TextDiffers as differs:
            return Drift(0, seen=str(differs), finding="text-differs")
        # Another text may have the same tokens if the tokenizer normalizes it.
        return _compared(
            body,
            tokens.encode(again),
            lambda left, right: cause or _cause(left, right, tokens),
            # One more than an example shows, so that it ends with dots.
            lambda ids: _listed(
                [repr(one)[1:-1] for one in tokens.decode_each(ids[:7])]
            ),
        )
    by_pieces = answer.pieces and _compare_pieces(answer, answer.pieces, tokens)
    return by_pieces or _compare_counts(answer, stops, tokens)


# With token IDs.


def _text_to_tokenize(
    answer: Answer, body: list[int], stops: Sequence[str], tokens: Tokens
) -> tuple[str, str]:
    """Return the text that a trainer would tokenize, and why the IDs decode to another."""
    decoded = tokens.decode(body)
    if answer.calls or answer.reasoning:
        return _with_parts(answer, decoded)
    text = answer.text
    if text in (decoded, tokens.decode(answer.ids or ())):
        return decoded, ""
    rest = decoded[len(text) :]
    if decoded.startswith(text) and (
        # A parser may hold back the last part of an answer that was cut.
        (answer.was_cut and (not rest or rest.strip(BROKEN)))
        or rest.startswith(tuple(stops))
    ):
        return decoded, ""
    if text == tokens.decode(body, special=False):
        return text, "special tokens"
    if text.rstrip(BROKEN) == decoded.rstrip(BROKEN):
        return text, "emoji"
    if _squeezed(text) == _squeezed(decoded):
        return text, "whitespace"
    if "</think>" in decoded and _squeezed(decoded).endswith(_squeezed(text)):
        return decoded, ""  # The record leaves the reasoning out.
    raise TextDiffers(_difference(text, decoded))


def _with_parts(answer: Answer, decoded: str) -> tuple[str, str]:
    """Return the decoded text, with the tool arguments as the record spells them."""
    bare = _squeezed(decoded)
    for part in (answer.reasoning, answer.text):
        # Parsers trim parts, and join the texts around a tool call.
        if _squeezed(part) not in bare and not _is_in_order(part.split(), decoded):
            raise TextDiffers(_difference(part, decoded))
    again, respelled = decoded, False
    for call in answer.calls:
        if call.name not in decoded:
            raise TextDiffers(f"no call of {call.name} in {_shown(decoded)}")
        if not call.arguments.strip() or call.arguments in again:
            continue
        try:
            wanted = json.loads(call.arguments)
        except ValueError:
            is_there = _squeezed(call.arguments) in bare
        else:
            raw = next((raw for raw, value in _objects(again) if value == wanted), "")
            if raw:
                again, respelled = again.replace(raw, call.arguments, 1), True
            is_there = bool(raw) or _has_values(wanted, decoded)
        if not (is_there or answer.was_cut):
            raise TextDiffers(_difference(call.arguments, decoded))
    return again, "tool arguments respelled" if respelled else ""


def _is_in_order(words: Sequence[str], text: str) -> bool:
    place = 0
    for word in words:
        place = text.find(word, place)
        if place < 0:
            return False
        place += len(word)
    return True


def _objects(text: str) -> Iterator[tuple[str, Any]]:
    decoder = json.JSONDecoder()
    for found in re.finditer("{", text):
        try:
            value, end = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            continue
        yield text[found.start() : end], value


def _has_values(arguments: Any, text: str) -> bool:
    """True if a string has the value of each argument of a call."""
    values = arguments.values() if isinstance(arguments, dict) else [arguments]
    return all(
        value in text if isinstance(value, str) else json.dumps(value) in text
        for value in values
    )


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _compared(
    sampled: list[Item],
    again: list[Item],
    cause_of: Callable[[list[Item], list[Item]], str],
    show: Callable[[list[Item]], str],
) -> Drift:
    """Compare the sampled tokens with others, between their equal starts and ends."""
    start = first_difference(sampled, again)
    left, right = sampled[start:], again[start:]
    if end := first_difference(left[::-1], right[::-1]):
        left, right = left[:-end], right[:-end]
    if not (left or right):
        return Drift(len(sampled))
    return Drift(
        tokens=len(sampled),
        differing=max(len(left), len(right)),
        cause=cause_of(left, right),
        seen=f"sampled {show(left)}, tokenized again {show(right)}",
        finding="drift",
    )


def _cause(left: list[int], right: list[int], tokens: Tokens) -> str:
    if any(tokens.is_special(one) for one in [*left, *right]):
        return "special tokens"
    pieces = tokens.decode_each([*left, *right])
    if _has_emoji("".join(pieces)):
        return "emoji"
    if tokens.decode(left).isspace() or tokens.decode(right).isspace():
        return "whitespace"
    return "split merges"


def _has_emoji(text: str) -> bool:
    return any(
        one == BROKEN or ord(one) > 0xFFFF or "\u2600" <= one <= "\u27bf"
        for one in text
    )


def _difference(text: str, decoded: str) -> str:
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text[:middle] in decoded else (low, middle - 1)
    there = decoded.find(text[:low]) + low
    lead = min(low, SHOWN // 2)
    return (
        f"the text has {_shown(text[low - lead :])}, the IDs decode to "
        f"{_shown(decoded[there - lead :])}"
    )


def _shown(text: str) -> str:
    return repr(text[:SHOWN] + ("..." if len(text) > SHOWN else ""))


# Without token IDs.


def _compare_pieces(
    answer: Answer, pieces: Sequence[str], tokens: Tokens
) -> Drift | None:
    """Compare by the texts of the tokens, which logprobs have even without IDs."""
    if answer.tokens is not None and len(pieces) != answer.tokens:
        return None
    sampled = [*pieces]
    while sampled and sampled[-1] in tokens.special_texts:
        sampled.pop()
    text = "".join(sampled)
    if BROKEN in text:
        if answer.calls or answer.reasoning:
            return None
        text = answer.text
    again = [_bare(piece) for piece in tokens.decode_each(tokens.encode(text))]
    return _compared(
        [_bare(piece) for piece in sampled],
        again,
        lambda left, right: (
            "emoji" if _has_emoji("".join([*left, *right])) else "split merges"
        ),
        _listed,
    )


def _bare(piece: str) -> str:
    """Return a token's text without spaces, which decoders of a single token may drop."""
    return piece.strip(" \u2581")


def _listed(pieces: list[str]) -> str:
    return "|".join(pieces[:6]) + ("|..." if len(pieces) > 6 else "") or "nothing"


def _compare_counts(
    answer: Answer, stops: Sequence[str], tokens: Tokens
) -> Drift | None:
    """Compare the number of tokens only; the text has no stop token."""
    is_plain = not (answer.calls or answer.reasoning or stops)
    if answer.tokens is None or not (answer.text and is_plain):
        return None
    again = len(tokens.encode(answer.text))
    if answer.tokens in (again, again + 1):
        return Drift(answer.tokens)
    return Drift(
        tokens=answer.tokens,
        differing=abs(answer.tokens - again),
        cause="another number of tokens",
        seen=f"sampled {answer.tokens} tokens, tokenized again {again}",
        finding="drift",
    )
