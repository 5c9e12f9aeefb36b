"""Chat templates of model families that RL trains, each with a tokenizer for tests.

A template beside this file acts like the published one of its family: what it keeps of
earlier turns, how it formats tool calls, what it writes after each message. A tokenizer
is a real one with a small vocabulary and the family's own special tokens. `sampled`
returns the tokens that a model of the family samples for a message; its template
formats the message differently.
"""

# ruff: noqa: RUF001  (DeepSeek's tokens have a fullwidth vertical line)

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.helpers.chat_templates import spelling

FOLDER = Path(__file__).parent
VOCABULARY = 1200
"""Of the tokenizers, before the special tokens of a family."""


@dataclass(frozen=True, eq=False)
class Family:
    """A family of models that share a chat template."""

    name: str
    special_tokens: tuple[str, ...]
    """Tokens that decoding omits by default."""
    stop_tokens: tuple[str, ...]
    """Tokens with which the model ends a turn: after text, then after tool calls."""
    spelled: Callable[[Mapping[str, Any]], str]
    """Text that the model samples for a message, before the stop token."""
    template: str | None = None
    """The file in this folder, without its ending: of the family's name if None."""
    added_tokens: tuple[str, ...] = ()
    """Single tokens that decoding keeps."""
    bos_token: str | None = None
    before_text: tuple[str, ...] = ()
    """Tokens that the tokenizer adds at the start by default."""
    eos_token: str | None = None
    """As the tokenizer's configuration has it: the first stop token if None."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    parallel_calls: bool = True
    """True if it supports more than one tool call in a message."""
    reasoning: bool = False
    """True if the model thinks before it answers."""
    call_ids: tuple[str, str] = ("call_1", "call_2")
    """Tool call IDs that the template takes."""

    def __str__(self) -> str:
        return self.name


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_THINK = ("<think>", "</think>")
_TOOL_CALL = ("<tool_call>", "</tool_call>")
_TOOL_RESPONSE = ("<tool_response>", "</tool_response>")
_QWEN3 = (*_TOOL_CALL, *_TOOL_RESPONSE, *_THINK)
_DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>")
_DEEPSEEK_ADDED = (
    *("<｜User｜>", "<｜Assistant｜>", *_THINK, "<｜tool▁sep｜>"),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    *("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
    *("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
)
_GLM = (
    *("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>"),
    *("<|user|>", "<|assistant|>", "<|observation|>"),
)
_GLM_ADDED = (
    *("/nothink", *_THINK, *_TOOL_CALL, *_TOOL_RESPONSE),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)
_KIMI = (
    *("[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>"),
    *("<|im_system|>", "<|im_middle|>"),
)
_KIMI_ADDED = (
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
)
_MISTRAL = (
    *("<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[IMG]"),
)
_NINE_CHARACTERS = ("paris0001", "rome00002")

_QWEN3_THINKING = Family(
    name="qwen3",
    special_tokens=_CHATML,
    added_tokens=_QWEN3,
    stop_tokens=("<|im_end|>",),
    reasoning=True,
    spelled=spelling.qwen3,
)
FAMILIES: tuple[Family, ...] = (
    _QWEN3_THINKING,
    replace(
        _QWEN3_THINKING,
        name="qwen3-no-thinking",
        template="qwen3",
        reasoning=False,
        template_kwargs={"enable_thinking": False},
        spelled=spelling.hermes,
    ),
    Family(
        name="deepseek-v3.1",
        special_tokens=_DEEPSEEK,
        added_tokens=_DEEPSEEK_ADDED,
        bos_token=_DEEPSEEK[0],
        before_text=_DEEPSEEK[:1],
        stop_tokens=_DEEPSEEK[1:],
        template_kwargs={"thinking": True},
        reasoning=True,
        spelled=spelling.deepseek_v3_1,
    ),
    Family(
        name="glm-4.7",
        special_tokens=_GLM,
        added_tokens=_GLM_ADDED,
        before_text=("[gMASK]", "<sop>"),
        stop_tokens=("<|user|>", "<|observation|>"),
        eos_token="<|endoftext|>",
        reasoning=True,
        spelled=spelling.glm_4_7,
    ),
    Family(
        name="kimi-k2",
        special_tokens=_KIMI,
        added_tokens=_KIMI_ADDED,
        bos_token="[BOS]",
        stop_tokens=("<|im_end|>",),
        eos_token="[EOS]",
        call_ids=("functions.get_weather:0", "functions.get_weather:1"),
        spelled=spelling.kimi,
    ),
    Family(
        name="gpt-oss",
        special_tokens=(
            *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
            *("<|return|>", "<|call|>", "<|startoftext|>", "<|endoftext|>"),
        ),
        bos_token="<|startoftext|>",
        stop_tokens=("<|return|>", "<|call|>"),
        parallel_calls=False,
        reasoning=True,
        spelled=spelling.harmony,
    ),
    Family(
        name="mistral-small-3.2",
        special_tokens=(
            *(*_MISTRAL, "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
            *("[TOOL_CONTENT]", "[CALL_ID]", "[ARGS]"),
        ),
        bos_token="<s>",
        before_text=("<s>",),
        stop_tokens=("</s>",),
        call_ids=_NINE_CHARACTERS,
        spelled=spelling.mistral_small,
    ),
)


def sampled(family: Family, message: Mapping[str, Any]) -> str:
    """Return the tokens that a model samples for a message, with the stop token.

    Tool arguments have spaces that no template writes.
    """
    said = {**message}
    if family.reasoning:
        said.setdefault("reasoning_content", "")
    stop = family.stop_tokens[-1 if message.get("tool_calls") else 0]
    return family.spelled(said) + stop


@cache
def tokenizer(family: Family) -> Any:
    from tokenizers import AddedToken, Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer.from_str(_trained())
    for names, special in ((family.special_tokens, True), (family.added_tokens, False)):
        made.add_tokens(
            [AddedToken(name, special=special, normalized=False) for name in names]
        )
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
        eos_token=family.eos_token or family.stop_tokens[0],
        additional_special_tokens=list(family.special_tokens),
        chat_template=_text_of(FOLDER / f"{family.template or family.name}.jinja"),
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
