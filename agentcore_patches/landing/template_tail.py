"""What a chat template writes after an assistant message, for any template.

The conversation is rendered as it is, and once more with a text that nobody else has
written, the *sentinel*, in place of the message's own. What both renderings end with is
what the template writes from that message on. Its first token is one that tokenizers
never merge with the text before it, so the tail can stand behind other token IDs, too.

To tokenize a long conversation takes much longer than to render it. So the second
rendering stays text, of which only the tail is tokenized: that is enough if the token
IDs of the first rendering end with the tail's.
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
"""SGLang's own way from messages to a prompt, by an endpoint."""

# A sentinel may end as the text that it replaces: then one with another end is tried.
_ENDS = "kqz"

# How far before the first difference a sentinel may begin.
_MARGIN = 64

_BLOCK = 256


class UncertainTail(ValueError):
    """What the template writes after a message could not be found with certainty."""


class Template:
    """A chat template, as SGLang applies it to the messages of a request."""

    def __init__(self, serving: OpenAIServingChat, process: Process):
        self._serving = serving
        self._process = process

    def token_ids(self, messages: list[Any]) -> list[int]:
        """The token IDs of messages."""
        return token_ids_of(self._serving, self._process(self._serving, messages))

    def text(self, messages: list[Any]) -> str | None:
        """The text of messages, None where SGLang makes none of them."""
        serving = copy.copy(self._serving)
        # SGLang would tokenize such text with caches of its own.
        if getattr(serving.template_manager, "python_chat_template", None) is not None:
            return None
        manager = serving.tokenizer_manager
        tokenizer = _Renderer(manager.tokenizer)
        serving.tokenizer_manager = _Instead(manager, tokenizer=tokenizer)
        try:
            self._process(serving, messages)
        except Exception:
            return None
        return tokenizer.text


class _Instead:
    """Another object, but for some of its attributes."""

    def __init__(self, other: Any, **attributes: Any):
        self._other = other
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)


class _Renderer(_Instead):
    """A tokenizer that keeps the text of a prompt, and tokenizes nothing."""

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
    """The token IDs of a prompt that SGLang made of messages."""
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
    """The token IDs after an assistant message, from the end of its turn on.

    Args:
        index: which of the messages it is; others follow it.
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
                    # Templates refuse what they do not expect.
                    break
                tail = _after_sentinel(tokenizer, rendered, probed, sentinel, enders)
            if tail is None:
                continue
            if with_calls and _skips_next(
                tokenizer, template, probe, index, sentinel, stops
            ):
                break
            return tail
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
    """Whether the next message stands before the token that ends the turn."""
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


def _after_sentinel_in_text(
    tokenizer: PreTrainedTokenizerBase,
    rendered: list[int],
    text: str,
    sentinel: str,
    stops: set[int] | None,
) -> list[int] | None:
    """As `_after_sentinel` of a text that is not tokenized."""
    _, found, after = text.partition(sentinel)
    if not found or sentinel in after:
        return None
    if stops is not None and not stops <= _unmerged_ids(tokenizer):
        return None
    split = _splitter(tokenizer, None if stops is None else frozenset(stops))
    first = split.search(after) if split else None
    if first is None or (stops is None and after[: first.start()].strip()):
        return None
    tail = _encode(tokenizer, after[first.start() :])
    is_split = tail[:1] and tail[0] in (stops or _unmerged_ids(tokenizer))
    return tail if is_split and rendered[-len(tail) :] == tail else None


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


@lru_cache(maxsize=8)
def _splitter(
    tokenizer: PreTrainedTokenizerBase, token_ids: frozenset[int] | None
) -> re.Pattern[str] | None:
    """Finds the texts of some of the unmerged token IDs, or of all if None."""
    wanted = _unmerged_ids(tokenizer) if token_ids is None else token_ids
    texts = filter(None, tokenizer.convert_ids_to_tokens(sorted(wanted)))
    longest_first = sorted(map(re.escape, texts), key=len, reverse=True)
    return re.compile("|".join(longest_first)) if longest_first else None


def _from(token_ids: list[int], wanted: Container[int]) -> list[int] | None:
    """Token IDs from the first of some on, None if there is none of them."""
    return [*dropwhile(lambda token_id: token_id not in wanted, token_ids)] or None


@lru_cache(maxsize=4)
def _unmerged_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The token IDs before which every tokenizer of this kind splits a text."""
    added = getattr(tokenizer, "added_tokens_decoder", ())
    return frozenset((*added, *getattr(tokenizer, "all_special_ids", ())))
