"""Print the fields that the `openai` SDK reads from chat and completions."""

from __future__ import annotations

from typing import Any

import openai

MODEL = "default"
OPTIONS: Any = {"model": MODEL, "temperature": 0, "max_tokens": 400}


def _chat(client: openai.OpenAI, messages: Any) -> dict[str, Any]:
    asked: Any = {**OPTIONS, "messages": messages, "logprobs": True}
    whole = client.chat.completions.create(**asked)
    prompt = None
    token_ids: list[int] = []
    logprobs: list[float] = []
    chunks: Any = client.chat.completions.create(**asked, stream=True)
    for chunk in chunks:
        prompt = getattr(chunk, "prompt_token_ids", prompt)
        for delta in chunk.choices:
            token_ids += getattr(delta, "token_ids", None) or []
            if delta.logprobs:
                logprobs += [entry.logprob for entry in delta.logprobs.content]
    with client.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        final: Any = stream.get_final_completion()
    return {
        "chat.completions.create()": _kept(whole),
        "chat.completions.create(stream=True), chunks added up": [
            prompt,
            token_ids,
            logprobs,
        ],
        "chat.completions.stream(), get_final_completion()": _kept(final),
    }


def _kept(answer: Any) -> list[Any]:
    [choice] = answer.choices
    return [
        getattr(answer, "prompt_token_ids", None),
        getattr(choice, "token_ids", None),
        [entry.logprob for entry in choice.logprobs.content],
    ]


def _flat(client: openai.OpenAI, messages: Any) -> dict[str, Any]:
    """Return the fields that the SDK's models do not declare."""
    asked: Any = {**OPTIONS, "messages": messages}
    asked["extra_body"] = {"return_token_logprobs": True}
    whole: Any = client.chat.completions.create(**asked)
    [choice] = whole.choices
    extra = choice.model_extra
    prompt = None
    added_up: dict[str, list[Any]] = {"token_ids": [], "token_logprobs": []}
    chunks: Any = client.chat.completions.create(**asked, stream=True)
    for chunk in chunks:
        prompt = chunk.model_extra.get("prompt_token_ids", prompt)
        for delta in chunk.choices:
            for name, values in added_up.items():
                values += delta.model_extra.get(name, [])
    return {
        "chat.completions.create(), token_logprobs": [
            whole.model_extra["prompt_token_ids"],
            extra["token_ids"],
            extra["token_logprobs"],
        ],
        "chat.completions.create(stream=True), token_logprobs": [
            prompt,
            *added_up.values(),
        ],
    }


def _completions(client: openai.OpenAI, prompt: list[int]) -> dict[str, Any]:
    asked: Any = {
        **OPTIONS,
        "prompt": prompt,
        "logprobs": 1,
        "extra_body": {"return_token_ids": True},
    }
    whole: Any = client.completions.create(**asked)
    [choice] = whole.choices
    read = None
    token_ids: list[int] = []
    logprobs: list[float] = []
    chunks: Any = client.completions.create(**asked, stream=True)
    for chunk in chunks:
        for delta in chunk.choices:
            read = getattr(delta, "prompt_token_ids", read)
            token_ids += getattr(delta, "token_ids", None) or []
            if delta.logprobs:
                logprobs += delta.logprobs.token_logprobs
    kept = [choice.prompt_token_ids, choice.token_ids, choice.logprobs.token_logprobs]
    added_up = [read, token_ids, logprobs]
    return {
        "completions.create()": kept,
        "completions.create(stream=True), chunks added up": added_up,
    }


def read(task: dict[str, Any]) -> dict[str, Any]:
    client = openai.OpenAI(
        base_url=f"{task['base_url']}/v1", api_key="none", max_retries=0
    )
    found = _chat(client, task["messages"])
    if task["completions"]:
        found |= _flat(client, task["messages"])
        found |= _completions(client, task["prompt"])
    return found
