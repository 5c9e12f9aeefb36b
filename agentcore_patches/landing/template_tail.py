"""What a chat template writes after an assistant message, for any template.

The conversation is rendered as it is, and once more with a text that nobody else has
written, the *sentinel*, in place of the message's own. What both renderings end with is
what the template writes from that message on. Its first token is one that tokenizers
never merge with the text before it, so the tail can stand behind other token IDs, too.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Container, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

Render = Callable[[list[Any]], list[int]]

# A sentinel may end as the text that it replaces: then one with another end is tried.
_ENDS = "kqz"

# How far before the first difference a sentinel may begin.
_MARGIN = 64

_BLOCK = 256


class UncertainTail(ValueError):
    """What the template writes after a message could not be found with certainty."""


def find_tail(
    tokenizer: Any,
    render: Render,
    messages: Sequence[Any],
    index: int,
    rendered: list[int],
    stops: set[int],
) -> list[int]:
    """The token IDs after an assistant message, from the end of its turn on.

    Args:
        tokenizer: the model's.
        render: the template's token IDs for messages.
        messages: the conversation.
        index: which of them it is; others follow it.
        rendered: the template's token IDs for the conversation as it is.
        stops: the token IDs with which a turn may end.

    Raises:
        UncertainTail: the template writes the message in a way that hides its end.
    """
    message = messages[index]
    with_calls = bool(message.tool_calls)
    for replace in (_in_arguments, _in_content) if with_calls else (_in_content,):
        for end in _ENDS:
            sentinel = secrets.token_hex(16) + end
            probe = [*messages]
            probe[index] = replace(message, sentinel)
            try:
                probed = render(probe)
            except Exception:
                # Templates refuse what they do not expect.
                break
            tail = _after_sentinel(
                tokenizer, rendered, probed, sentinel, stops if with_calls else None
            )
            if tail is None:
                continue
            if with_calls and _skips_next(
                tokenizer, render, probe, index, sentinel, stops
            ):
                break
            return tail
    raise UncertainTail(
        f"what the chat template writes after messages[{index}] cannot be found "
        "with certainty"
    )


def _skips_next(
    tokenizer: Any,
    render: Render,
    probe: list[Any],
    index: int,
    sentinel: str,
    stops: set[int],
) -> bool:
    """Whether the next message stands before the token that ends the turn."""
    following = secrets.token_hex(16)
    probe = [*probe]
    probe[index + 1] = _in_content(probe[index + 1], following)
    try:
        text = tokenizer.decode(render(probe))
    except Exception:
        return True
    before = text.partition(sentinel)[2].partition(following)[0]
    return not any(tokenizer.decode([stop]) in before for stop in stops)


def stop_token_ids(manager: TokenizerManager) -> set[int]:
    """The token IDs with which the model ends a turn."""
    tokenizer = manager.tokenizer
    return {
        token_id
        for token_id in (
            tokenizer.eos_token_id,
            *(manager.model_config.hf_eos_token_id or ()),
            *(getattr(tokenizer, "additional_stop_token_ids", None) or ()),
        )
        if token_id is not None
    }


def count_common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many token IDs two lists have in common at their start."""
    length = min(len(one), len(other))
    start = 0
    while (
        start < length and one[start : start + _BLOCK] == other[start : start + _BLOCK]
    ):
        start += _BLOCK
    while start < length and one[start] == other[start]:
        start += 1
    return min(start, length)


def _in_content(message: Any, sentinel: str) -> Any:
    content: Any = sentinel
    if isinstance(message.content, list):
        from sglang.srt.entrypoints.openai.protocol import (
            ChatCompletionMessageContentTextPart,
        )

        content = [ChatCompletionMessageContentTextPart(type="text", text=sentinel)]
    return message.model_copy(update={"content": content})


def _in_arguments(message: Any, sentinel: str) -> Any:
    *others, last = message.tool_calls
    arguments = json.dumps({"value": sentinel})
    function = last.function.model_copy(update={"arguments": arguments})
    last = last.model_copy(update={"function": function})
    return message.model_copy(update={"tool_calls": [*others, last]})


def _after_sentinel(
    tokenizer: Any,
    rendered: list[int],
    probed: list[int],
    sentinel: str,
    stops: set[int] | None,
) -> list[int] | None:
    """The tail of a rendering with a sentinel, None if it is not certain.

    Args:
        stops: the token IDs of which one ends the turn; None if the turn ends right
            after the sentinel, whatever with.
    """
    start = count_common(rendered, probed)
    n_common = count_common(rendered[start:][::-1], probed[start:][::-1])
    end = len(probed) - n_common
    differing = tokenizer.decode(probed[max(0, start - _MARGIN) : end])
    _, found, after = differing.partition(sentinel)
    if not found or sentinel in after:
        return None
    tail = probed[end:]
    if stops is not None:
        # What ends the call comes first: the template's as well, but it ends no turn.
        return _from(tail, stops) if stops.isdisjoint(probed[start:end]) else None
    closed = _from(tail, _unmerged_ids(tokenizer))
    if closed is None:
        return None
    skipped = after + tokenizer.decode(tail[: len(tail) - len(closed)])
    return closed if not skipped.strip() else None


def _from(token_ids: list[int], wanted: Container[int]) -> list[int] | None:
    """Token IDs from the first of some on, None if there is none of them."""
    positions: Iterator[int] = (
        position for position, token_id in enumerate(token_ids) if token_id in wanted
    )
    position = next(positions, None)
    return None if position is None else token_ids[position:]


@lru_cache(maxsize=4)
def _unmerged_ids(tokenizer: Any) -> frozenset[int]:
    """The token IDs before which every tokenizer of this kind splits a text."""
    added = getattr(tokenizer, "added_tokens_decoder", ())
    return frozenset((*added, *getattr(tokenizer, "all_special_ids", ())))
