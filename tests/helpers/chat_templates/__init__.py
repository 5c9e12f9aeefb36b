"""Chat templates of model families that RL trains, each with a tokenizer for tests.

A template beside this file acts like the published one of its family: what it keeps of
earlier turns, how it formats tool calls, what it writes after each message. A tokenizer
is a real one with a small vocabulary and the family's own special tokens.
"""

# ruff: noqa: RUF001  (DeepSeek's tokens have a fullwidth vertical line)

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
VOCABULARY = 1200
"""Of the tokenizers, before the special tokens of a family."""


# The tokens of all families, in their templates.
_TOKENS = re.compile(
    r"<[|｜][^|｜]+[|｜]>|</?(?:s|sop|think|tool_call|tool_response|arg_key|arg_value)>"
    r"|\[/?(?:[A-Z_]+|gMASK)\]"
)


@dataclass(frozen=True, eq=False)
class Family:
    """A family of models that share a chat template."""

    name: str
    stop_tokens: tuple[str, ...]
    """Tokens with which the model ends a turn: after text, then after tool calls."""
    bos_token: str | None = None
    before_text: tuple[str, ...] = ()
    """Tokens that the tokenizer adds at the start by default."""
    eos_token: str | None = None
    """As the tokenizer's configuration has it: the first stop token if None."""
    parallel_calls: bool = True
    """True if it supports more than one tool call in a message."""
    call_ids: tuple[str, str] = ("call_1", "call_2")
    """Tool call IDs that the template takes."""

    def __str__(self) -> str:
        return self.name

    @property
    def template(self) -> str:
        """The file in this folder."""
        return _text_of(FOLDER / f"{self.name}.jinja")


FAMILIES: tuple[Family, ...] = (
    Family(
        "qwen3",
        bos_token="<|endoftext|>",
        stop_tokens=("<|im_end|>",),
    ),
    Family(
        "deepseek-v3.1",
        bos_token="<｜begin▁of▁sentence｜>",
        before_text=("<｜begin▁of▁sentence｜>",),
        stop_tokens=("<｜end▁of▁sentence｜>",),
    ),
    Family(
        "glm-4.7",
        before_text=("[gMASK]", "<sop>"),
        stop_tokens=("<|user|>", "<|observation|>"),
        eos_token="<|endoftext|>",
    ),
    Family(
        "kimi-k2",
        bos_token="[BOS]",
        stop_tokens=("<|im_end|>",),
        eos_token="[EOS]",
        call_ids=("functions.get_weather:0", "functions.get_weather:1"),
    ),
    Family(
        "gpt-oss",
        bos_token="<|startoftext|>",
        stop_tokens=("<|return|>", "<|call|>"),
        parallel_calls=False,
    ),
    Family(
        "mistral-small-3.2",
        bos_token="<s>",
        before_text=("<s>",),
        stop_tokens=("</s>",),
        call_ids=("paris0001", "rome00002"),
    ),
)


def sampled(family: Family, message: Mapping[str, Any]) -> str:
    """Return text that a model may sample for a message, with the stop token.

    No template writes it: it has thinking, and tool calls that are spelled otherwise.
    """
    calls = message.get("tool_calls")
    stop = family.stop_tokens[-1 if calls else 0]
    return f"Hm.</think>{message['content']}{calls or ''}{stop}"


@cache
def tokenizer(family: Family) -> Any:
    from tokenizers import AddedToken, Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer.from_str(_trained())
    eos = family.eos_token or family.stop_tokens[0]
    named = (*family.stop_tokens, *family.before_text, eos, family.bos_token)
    for name in dict.fromkeys(
        [*_TOKENS.findall(family.template), *filter(None, named)]
    ):
        made.add_tokens([AddedToken(name, special=True, normalized=False)])
    if family.before_text:
        made.post_processor = processors.TemplateProcessing(
            single=[*family.before_text, "$A"],
            special_tokens=[
                (name, made.token_to_id(name)) for name in family.before_text
            ],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token=family.bos_token,
        eos_token=eos,
        chat_template=family.template,
        clean_up_tokenization_spaces=False,
    )


@cache
def _trained() -> str:
    """Train a byte-level BPE tokenizer on the words of the templates."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        [_text_of(path) for path in sorted(FOLDER.glob("*.jinja"))],
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    trained: str = bpe.to_str()
    return trained


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")
