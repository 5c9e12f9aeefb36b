"""Find the text that any chat template writes after an assistant message: the tail.

The conversation is rendered twice: as it is, and with a unique random text, the
*sentinel*, in place of the message's text. The common end of both renderings is the
tail. The tail starts with a token that tokenizers never merge with the text before it.
It can therefore follow other token IDs as well.

Tokenizing a long conversation takes much longer than rendering it. The second rendering
therefore stays text, and only its tail is tokenized. This is enough if the token IDs of
the first rendering end with those of the tail.
"""

from __future__ import annotations

import copy
import json
import re
import secrets
from collections.abc import Callable, Container, Sequence
from functools import lru_cache
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionMessageGenericParam,
        ChatCompletionMessageUserParam,
        MessageProcessingResult,
    )
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
    from sglang.srt.managers.tokenizer_manager import TokenizerManager
    from transformers import PreTrainedTokenizerBase

Process = Callable[["OpenAIServingChat", list[Any]], Any]
"""A function that builds the prompt of messages, with SGLang's own code."""

# A sentinel may end like the text it replaces. Then the other last character is tried.
_ENDS = "kq"

# A sentinel may start this many tokens before the first difference.
_MARGIN = 64

_BLOCK = 256


# Whether the message called tools when no tail was found last time, by tokenizer.
_failed: set[tuple[Any, bool]] = set()


class UncertainTail(ValueError):
    """The tail after a message cannot be found with certainty."""


class Template:
    """The chat template, applied to messages by SGLang's own code."""

    def __init__(self, serving: OpenAIServingChat, process: Process):
        self._serving = serving
        self._process = process

    def token_ids(self, messages: list[Any]) -> list[int]:
        """Render messages to token IDs."""
        return token_ids_of(self._serving, self._process(self._serving, messages))

    def text(self, messages: list[Any]) -> str | None:
        """Render messages to text; None if SGLang does not render them as text."""
        serving = copy.copy(self._serving)
        # From 0.5.23 on, SGLang tokenizes the text of Python templates itself.
        if getattr(serving.template_manager, "python_chat_template", None) is not None:
            return None
        manager = serving.tokenizer_manager
        tokenizer = _Renderer(manager.tokenizer)
        instead: Any = _Instead(manager, tokenizer=tokenizer)
        serving.tokenizer_manager = instead
        try:
            self._process(serving, messages)
        except Exception:
            return None
        return tokenizer.text


class _Instead:
    """A proxy of another object that overrides some attributes."""

    def __init__(self, other: Any, **attributes: Any):
        self._other = other
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)


class _Renderer(_Instead):
    """A tokenizer that records the text of a prompt without tokenizing it."""

    text: str | None = None

    def apply_chat_template(
        self, *args: Any, tokenize: bool = True, **more: Any
    ) -> Any:
        self.text = self._other.apply_chat_template(*args, tokenize=False, **more)
        return [] if tokenize else ""

    def encode(self, text: str, *args: Any, **more: Any) -> list[int]:
        if self.text is None:
            self.text = text
        return []

    def decode(self, *args: Any, **more: Any) -> str:
        return ""


def token_ids_of(
    serving: OpenAIServingChat, result: MessageProcessingResult
) -> list[int]:
    """Return the token IDs of the prompt that SGLang built from messages."""
    if isinstance(result.prompt_ids, list) and result.prompt_ids:
        return result.prompt_ids
    return _encode(
        serving.tokenizer_manager.tokenizer, result.prompt_ids or result.prompt
    )


def find_tail(
    tokenizer: PreTrainedTokenizerBase,
    template: Template,
    messages: Sequence[Any],
    index: int,
    rendered: list[int],
    stops: set[int],
) -> list[int]:
    """Return the token IDs after an assistant message, from the end of its turn on.

    Args:
        index: index of the message; other messages follow it.
        rendered: the template's token IDs for the unchanged conversation.
        stops: the token IDs that may end a turn.

    Raises:
        UncertainTail: the end of the message cannot be found in the rendering.
    """
    message = messages[index]
    with_calls = bool(message.tool_calls)
    # Another conversation may have a tail: one try is left.
    ends = _ENDS[:1] if (tokenizer, with_calls) in _failed else _ENDS
    for replace in (_in_arguments, _in_content) if with_calls else (_in_content,):
        for end in ends:
            sentinel = secrets.token_hex(16) + end
            probe = [*messages]
            probe[index] = replace(message, sentinel)
            enders = stops if with_calls else None
            tail = None
            text = template.text(probe)
            if text is not None:
                tail = _after_sentinel_in_text(
                    tokenizer, rendered, text, sentinel, enders
                )
            if tail is None:
                try:
                    probed = template.token_ids(probe)
                except Exception:
                    # Templates reject unexpected messages.
                    break
                tail = _after_sentinel(tokenizer, rendered, probed, sentinel, enders)
            if tail is None:
                continue
            if with_calls and _skips_next(
                tokenizer, template, probe, index, sentinel, stops
            ):
                break
            _failed.discard((tokenizer, with_calls))
            return tail
    _failed.add((tokenizer, with_calls))
    raise UncertainTail(
        f"what the chat template writes after messages[{index}] cannot be found "
        "with certainty"
    )


def _skips_next(
    tokenizer: PreTrainedTokenizerBase,
    template: Template,
    probe: list[Any],
    index: int,
    sentinel: str,
    stops: set[int],
) -> bool:
    """True if the template writes the next message before the end-of-turn token."""
    following = secrets.token_hex(16)
    probe = [*probe]
    probe[index + 1] = _in_content(probe[index + 1], following)
    try:
        text = template.text(probe) or tokenizer.decode(template.token_ids(probe))
    except Exception:
        return True
    before = text.partition(sentinel)[2].partition(following)[0]
    return not any(tokenizer.decode([stop]) in before for stop in stops)


def stop_token_ids(manager: TokenizerManager) -> set[int]:
    """Return the token IDs with which the model ends a turn."""
    tokenizer = manager.tokenizer
    # SGLang gives some tokenizers `additional_stop_token_ids`.
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
    """Return the length of the common prefix of two lists of token IDs."""
    length = min(len(one), len(other))
    start = 0
    while (
        start < length and one[start : start + _BLOCK] == other[start : start + _BLOCK]
    ):
        start += _BLOCK
    while start < length and one[start] == other[start]:
        start += 1
    return min(start, length)


def _in_content(
    message: ChatCompletionMessageGenericParam | ChatCompletionMessageUserParam,
    sentinel: str,
) -> Any:
    content: Any = sentinel
    if isinstance(message.content, list):
        from sglang.srt.entrypoints.openai.protocol import (
            ChatCompletionMessageContentTextPart,
        )

        content = [ChatCompletionMessageContentTextPart(type="text", text=sentinel)]
    return message.model_copy(update={"content": content})


def _in_arguments(message: ChatCompletionMessageGenericParam, sentinel: str) -> Any:
    *others, last = message.tool_calls
    arguments = json.dumps({"value": sentinel})
    function = last.function.model_copy(update={"arguments": arguments})
    last = last.model_copy(update={"function": function})
    return message.model_copy(update={"tool_calls": [*others, last]})


def _after_sentinel(
    tokenizer: PreTrainedTokenizerBase,
    rendered: list[int],
    probed: list[int],
    sentinel: str,
    stops: set[int] | None,
) -> list[int] | None:
    """Return the tail of a tokenized rendering with a sentinel, None if uncertain.

    Args:
        stops: the token IDs that may end the turn; None if any unmerged token right
            after the sentinel ends the turn.
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
        # The template first closes the tool call, which does not end the turn.
        return _from(tail, stops) if stops.isdisjoint(probed[start:end]) else None
    closed = _from(tail, _unmerged_ids(tokenizer))
    if closed is None:
        return None
    skipped = after + tokenizer.decode(tail[: len(tail) - len(closed)])
    return closed if not skipped.strip() else None


def _after_sentinel_in_text(
    tokenizer: PreTrainedTokenizerBase,
    rendered: list[int],
    text: str,
    sentinel: str,
    stops: set[int] | None,
) -> list[int] | None:
    """Return the same as `_after_sentinel`, from a rendering that is still text."""
    _, found, after = text.partition(sentinel)
    if not found or sentinel in after:
        return None
    unmerged = _unmerged_ids(tokenizer)
    enders = unmerged if stops is None else frozenset(stops)
    if not enders or not enders <= unmerged:
        return None
    first = _splitter(tokenizer, enders).search(after)
    if first is None or (stops is None and after[: first.start()].strip()):
        return None
    tail = _encode(tokenizer, after[first.start() :])
    is_split = tail[:1] and tail[0] in enders
    return tail if is_split and rendered[-len(tail) :] == tail else None


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


@lru_cache(maxsize=8)
def _splitter(
    tokenizer: PreTrainedTokenizerBase, token_ids: frozenset[int]
) -> re.Pattern[str]:
    """Compile a pattern for the texts of token IDs."""
    texts = filter(None, tokenizer.convert_ids_to_tokens(sorted(token_ids)))
    longest_first = sorted(map(re.escape, texts), key=len, reverse=True)
    return re.compile("|".join(longest_first) or "(?!)")


def _from(token_ids: list[int], wanted: Container[int]) -> list[int] | None:
    """Return the token IDs from the first wanted one on, None without one."""
    return [*dropwhile(lambda token_id: token_id not in wanted, token_ids)] or None


@lru_cache(maxsize=4)
def _unmerged_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the token IDs before which the tokenizer always splits a text."""
    # Not all of SGLang's tokenizers are those of transformers.
    added = getattr(tokenizer, "added_tokens_decoder", ())
    return frozenset((*added, *getattr(tokenizer, "all_special_ids", ())))
