"""Clean recorded conversations, in every shape that `audit` reads."""

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
        self.logprobs = [-0.01 - (at * 37 % 101) / 123 for at in range(len(ids))]
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


# Shapes. A shape makes the lines of a file from conversations.


def _entries(turn: Recorded) -> Json | None:
    if turn.logprobs is None:
        return None
    pairs = zip(turn.pieces, turn.logprobs, strict=False)
    return {"content": [{"token": piece, "logprob": one} for piece, one in pairs]}


def _given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _thirds(values: list[Any] | None) -> list[list[Any]]:
    """Split a list into three parts, like a stream."""
    if values is None:
        return [[], [], []]
    third = len(values) // 3
    return [values[:third], values[third : 2 * third], values[2 * third :]]


def chat(turn: Recorded, session: str | None) -> Json:
    choice = {
        "index": 0,
        "message": answer_message(turn),
        "logprobs": _entries(turn),
        "finish_reason": turn.finish,
        **_given(token_ids=turn.ids, weight_versions=turn.spans or None),
    }
    response = {
        "object": "chat.completion",
        "choices": [choice],
        "usage": {"completion_tokens": turn.tokens},
        **_given(prompt_token_ids=turn.prompt),
    }
    return _exchange(turn, session, response=response)


def chat_stream(turn: Recorded, session: str | None) -> Json:
    message = answer_message(turn)
    texts = _thirds([*turn.text])
    ids = _thirds(turn.ids)
    entries = _entries(turn)
    logprobs = _thirds(entries["content"] if entries else None)
    chunks: list[Json] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    ]
    if turn.prompt is not None:
        chunks[0]["prompt_token_ids"] = turn.prompt
    for at in range(3):
        delta: Json = {"content": "".join(texts[at])}
        if at == 0 and turn.reasoning:
            delta["reasoning_content"] = turn.reasoning
        if at == 2 and turn.call:
            [call] = message["tool_calls"]
            delta["tool_calls"] = [{**call, "index": 0}]
        choice: Json = {"index": 0, "delta": delta}
        if turn.ids is not None:
            choice["token_ids"] = ids[at]
        if entries:
            choice["logprobs"] = {"content": logprobs[at]}
        chunks.append({"choices": [choice]})
    last: Json = {"index": 0, "delta": {}, "finish_reason": turn.finish}
    if turn.spans:
        last["weight_versions"] = turn.spans
    chunks.append({"choices": [last]})
    chunks.append({"choices": [], "usage": {"completion_tokens": turn.tokens}})
    return _exchange(turn, session, chunks=chunks)


def completions(turn: Recorded, session: str | None) -> Json:
    choice = {
        "index": 0,
        "text": raw_answer(turn.text, turn.reasoning, turn.call),
        "finish_reason": turn.finish,
        **_given(
            token_ids=turn.ids,
            prompt_token_ids=turn.prompt,
            weight_versions=turn.spans or None,
        ),
    }
    if turn.logprobs is not None:
        choice["logprobs"] = {"token_logprobs": turn.logprobs}
    response = {
        "object": "text_completion",
        "choices": [choice],
        "usage": {"completion_tokens": turn.tokens},
    }
    record = _exchange(turn, session, response=response)
    return {**record, "request": {"prompt": turn.prompt or "text"}}


def messages(turn: Recorded, session: str | None) -> Json:
    response = {
        "type": "message",
        "content": _blocks(turn),
        "stop_reason": "end_turn",
        "usage": {"output_tokens": turn.tokens},
        "metadata": {"weight_versions": turn.spans} if turn.spans else None,
        **_given(
            prompt_token_ids=turn.prompt,
            token_ids=turn.ids,
            token_logprobs=turn.logprobs,
        ),
    }
    return {**_exchange(turn, session, response=response), "request": _to_claude(turn)}


def messages_stream(turn: Recorded, session: str | None) -> Json:
    start = _given(
        prompt_token_ids=turn.prompt,
        metadata={"weight_versions": turn.spans} if turn.spans else None,
    )
    events: list[Json] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(_blocks(turn)):
        first = {**block, "input": {}} if "input" in block else block
        first = {k: "" if k in ("text", "thinking") else v for k, v in first.items()}
        event = {"type": "content_block_start", "index": index, "content_block": first}
        delta = (
            {"type": "input_json_delta", "partial_json": turn.call and turn.call[1]}
            if "input" in block
            else block
        )
        events.append(event)
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    events.append({**end, "usage": {"output_tokens": turn.tokens}})
    for name, values in (("token_ids", turn.ids), ("token_logprobs", turn.logprobs)):
        if values is not None:
            half = len(values) // 2
            events[1][name], events[-1][name] = values[:half], values[half:]
    return {**_exchange(turn, session, chunks=events), "request": _to_claude(turn)}


def _blocks(turn: Recorded) -> list[Json]:
    found: list[Json] = []
    if turn.reasoning:
        found.append({"type": "thinking", "thinking": turn.reasoning})
    found.append({"type": "text", "text": turn.text})
    if turn.call:
        name, arguments = turn.call
        arguments = json.loads(arguments)
        found.append({"type": "tool_use", "name": name, "input": arguments})
    return found


def _to_claude(turn: Recorded) -> Json:
    """Convert a chat request to one of /v1/messages, with content blocks as history."""
    system, *rest = turn.messages
    return {"system": system["content"], "messages": rest, "tools": turn.tools}


def responses(turn: Recorded, session: str | None) -> Json:
    response = _response(turn)
    return {**_exchange(turn, session, response=response), "request": _items(turn)}


def responses_stream(turn: Recorded, session: str | None) -> Json:
    whole = _response(turn)
    first = _given(object="response", prompt_token_ids=turn.prompt)
    events: list[Json] = [
        {"type": "response.created", "response": first},
        {"type": "response.output_text.delta", "delta": turn.text},
        {"type": "response.completed", "response": whole},
    ]
    for name in ("token_ids", "token_logprobs"):
        if name in whole:
            events[1][name] = whole[name]
    return {**_exchange(turn, session, chunks=events), "request": _items(turn)}


def _response(turn: Recorded) -> Json:
    output: list[Json] = []
    if turn.reasoning:
        parts = [{"type": "reasoning_text", "text": turn.reasoning}]
        output.append({"type": "reasoning", "content": parts})
    parts = [{"type": "output_text", "text": turn.text}]
    output.append({"type": "message", "role": "assistant", "content": parts})
    if turn.call:
        name, arguments = turn.call
        output.append({"type": "function_call", "name": name, "arguments": arguments})
    return {
        "object": "response",
        "status": "completed",
        "error": None,
        "output": output,
        "usage": {"output_tokens": turn.tokens},
        "metadata": {"weight_versions": turn.spans} if turn.spans else None,
        **_given(
            prompt_token_ids=turn.prompt,
            token_ids=turn.ids,
            token_logprobs=turn.logprobs,
        ),
    }


def _items(turn: Recorded) -> Json:
    items: list[Json] = []
    for message in turn.messages[1:]:
        items.append({"role": message["role"], "content": message["content"]})
        if message.get("reasoning_content"):
            parts = [{"type": "reasoning_text", "text": message["reasoning_content"]}]
            items.insert(-1, {"type": "reasoning", "content": parts})
        for call in message.get("tool_calls", ()):
            items.append({"type": "function_call", **call["function"]})
    instructions = turn.messages[0]["content"]
    return {"instructions": instructions, "input": items, "tools": turn.tools}


def gateway(turn: Recorded, session: str | None) -> Json:
    response = {"metadata": {"weight_versions": turn.spans}} if turn.spans else {}
    return {
        "trace_id": "t",
        "session_id": session or "",
        "messages": turn.messages,
        "prompt_token_ids": turn.prompt or [],
        "response_message": answer_message(turn),
        "completion_token_ids": turn.ids or [],
        "logprobs": turn.logprobs,
        "finish_reason": turn.finish,
        "token_counts": {"completion": turn.tokens},
        "raw_request": {"tools": turn.tools},
        "raw_response": response or None,
    }


def _exchange(turn: Recorded, session: str | None, **answer: Any) -> Json:
    request = {"messages": turn.messages, "tools": turn.tools or None}
    return {"request": request, **_given(session=session), **answer}


def rollout(turns: Sequence[Recorded], session: str | None) -> Json:
    """Return a line of verifiers 0.1."""
    steps = [
        {
            "prompt": turn.messages,
            "completion": [answer_message(turn)],
            "response": {"usage": {"completion_tokens": turn.tokens}},
            "tokens": {
                "prompt_ids": turn.prompt,
                "completion_ids": turn.ids,
                "completion_logprobs": turn.logprobs,
                "is_truncated": False,
            },
            "trajectory_id": session,
        }
        for turn in turns
    ]
    return {"example_id": 0, "prompt": [], "completion": [], "trajectory": steps}


def episode(turns: Sequence[Recorded], session: str | None) -> Json:
    """Return a line of verifiers 0.4. A node has the tokens that its message adds."""
    nodes: list[Json] = []
    calls: list[Json] = []
    done = 0
    for turn in turns:
        new = [one for one in turn.messages if one["role"] != "assistant"]
        for message in new[len([n for n in nodes if not n["sampled"]]) :]:
            nodes.append({"message": message, "sampled": False})
        prompt, ids = turn.prompt or [], turn.ids or []
        added = prompt[done:]
        nodes.append(
            {
                "message": answer_message(turn),
                "sampled": True,
                "token_ids": [*added, *ids],
                "mask": [False] * len(added) + [True] * len(ids),
                "logprobs": turn.logprobs or [],
            }
        )
        calls.append(
            {"node": len(nodes) - 1, "usage": {"completion_tokens": turn.tokens}}
        )
        done = len(prompt) + len(ids)
    for number, node in enumerate(nodes):
        node["parent"] = number - 1 if number else None
    return {"traces": [{"id": session, "nodes": nodes, "calls": calls}]}


Shape = Callable[[Recorded, str | None], Json]

BY_TURN: dict[str, Shape] = {
    "chat": chat,
    "chat_stream": chat_stream,
    "completions": completions,
    "messages": messages,
    "messages_stream": messages_stream,
    "responses": responses,
    "responses_stream": responses_stream,
    "gateway": gateway,
}
BY_ROLLOUT = {"rollout": rollout, "episode": episode}
SHAPES = (*BY_TURN, *BY_ROLLOUT)


def records(
    shape: str, turns: Sequence[Recorded], session: str | None = "s"
) -> list[Json]:
    """Return the lines of a recorded conversation."""
    if shape in BY_ROLLOUT:
        return [BY_ROLLOUT[shape](turns, session)]
    return [BY_TURN[shape](turn, session) for turn in turns]


def write(file: Path, lines: Iterable[Json]) -> Path:
    """Write a recording."""
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return file
