"""Clean recorded conversations: built as chat, and kept in every shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

Json = dict[str, Any]

START, END = "<|im_start|>", "<|im_end|>"

TEXTS = (
    "Hello! How are you today, my friend? The weather is fine, and I know my lines.",
    "I will look at the clock 🕐 there, and then I tell you the time in the city.",
    "你好，世界！ It is sunny in Paris, twenty degrees, and the river is quiet.",  # noqa: RUF001
    "Here they are: anchor, apple, autumn, badge, basket, beacon, cabin, candle.",
)
"""Answers; the tokenizer is trained on them."""

CALL = ("get_weather", '{"city": "Paris", "days": 3}')
THOUGHT = "The user wants the weather, so I call the tool for it now."


@cache
def tokenizer() -> Tokenizer:
    """A small byte-level BPE tokenizer."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=[START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([*TEXTS, THOUGHT, str(CALL), "\n\n"] * 3, trainer)
    return made


def save_tokenizer(folder: Path) -> Path:
    """Write a model folder that holds only the tokenizer."""
    folder.mkdir(exist_ok=True)
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def encode(text: str) -> list[int]:
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


def decode(ids: Sequence[int]) -> str:
    return str(tokenizer().decode([*ids], skip_special_tokens=False))


@dataclass
class Recorded:
    """A turn that is not yet in any format; tests plant defects in it."""

    messages: list[Json]
    prompt: list[int] | None
    text: str = ""
    ids: list[int] | None = None
    logprobs: list[float | None] | None = None
    tokens: int = 0
    reasoning: str = ""
    call: tuple[str, str] | None = None
    pieces: list[str] = field(default_factory=list)
    spans: list[Json] = field(default_factory=list)
    finish: str = "stop"
    tools: list[Json] = field(default_factory=list)

    def says(self, ids: list[int], text: str) -> None:
        """Have the model sample these tokens; the server calls them `text`."""
        self.ids, self.text, self.tokens = ids, text, len(ids)
        self.logprobs = [
            round(-0.01 - at * 37 % 101 / 123, 5) for at in range(len(ids))
        ]
        self.pieces = [decode([one]) for one in ids]
        self.spans = [{"version": "7", "start": 0, "end": len(ids)}]


def raw_answer(text: str, reasoning: str, call: tuple[str, str] | None) -> str:
    """Return an answer as the model writes it."""
    thought = f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""
    called = ""
    if call:
        called = f'<tool_call>\n{{"name": "{call[0]}", "arguments": {call[1]}}}\n</tool_call>'
    return thought + text + called


def answer_message(turn: Recorded) -> Json:
    message: Json = {"role": "assistant", "content": turn.text}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.call:
        name, arguments = turn.call
        function = {"name": name, "arguments": arguments}
        message["tool_calls"] = [{"id": "c", "type": "function", "function": function}]
    return message


def conversation(
    n_turns: int = 3,
    *,
    first: int = 0,
    reasoning: bool = False,
    call: bool = False,
    system: str = "Be kind.",
    tokens_of: Callable[[int, str], list[int]] = lambda _, text: encode(text),
) -> list[Recorded]:
    """Return the turns of a conversation; each starts with the tokens of the last one.

    `tokens_of` returns the tokens that the model samples for a turn's text.
    """
    messages: list[Json] = [{"role": "system", "content": system}]
    ids = encode(f"{START}system\n{system}{END}\n")
    turns = []
    for number in range(n_turns):
        question = f"Question {first} and {number}?"
        messages = [*messages, {"role": "user", "content": question}]
        ids = [*ids, *encode(f"{START}user\n{question}{END}\n{START}assistant\n")]
        text = TEXTS[(first + number) % len(TEXTS)]
        thought = THOUGHT if reasoning else ""
        called = CALL if call else None
        sampled = tokens_of(number, raw_answer(text, thought, called))
        sampled = [*sampled, *encode(END)]
        turn = Recorded(messages, ids, reasoning=thought, call=called)
        turn.says(sampled, text)
        turns.append(turn)
        messages = [*messages, answer_message(turn)]
        ids = [*ids, *sampled, *encode("\n")]
    return turns


def records(turns: Sequence[Recorded], session: str | None = "s") -> list[Json]:
    """Return the lines of a recorded conversation: chat requests and responses."""
    return [_chat(turn, session) for turn in turns]


def _chat(turn: Recorded, session: str | None) -> Json:
    entries = None
    if turn.logprobs is not None:
        pairs = zip(turn.pieces, turn.logprobs, strict=False)
        entries = {"content": [{"token": t, "logprob": one} for t, one in pairs]}
    choice = {
        "index": 0,
        "message": answer_message(turn),
        "logprobs": entries,
        "finish_reason": turn.finish,
        **_given(token_ids=turn.ids, weight_versions=turn.spans or None),
    }
    response = {
        "object": "chat.completion",
        "choices": [choice],
        "usage": {"completion_tokens": turn.tokens},
        **_given(prompt_token_ids=turn.prompt),
    }
    request = {"messages": turn.messages, "tools": turn.tools or None}
    return {"request": request, **_given(session=session), "response": response}


def _given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


SHAPES = (
    *("chat_stream", "completions", "messages", "messages_stream", "responses"),
    *("responses_stream", "gateway", "rollout", "episode"),
)
"""The other shapes that `audit` reads."""


def kept(shape: str) -> list[Json]:
    """Return `conversation(2, reasoning=True, call=True)` in another shape."""
    file = Path(__file__).with_name("recordings.jsonl")
    lines = map(json.loads, file.read_text("utf-8").splitlines())
    return [line["record"] for line in lines if line["shape"] == shape]


def write(file: Path, lines: Iterable[Json]) -> Path:
    """Write a recording."""
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return file
