"""Print the fields that the `openai` SDK reads from chat and completions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai

OPTIONS: Any = {"model": "default", "temperature": 0, "max_tokens": 400}

Read = Callable[[Any], list[float]]
"""Reads the logprobs of a choice."""


def _of_entries(choice: Any) -> list[float]:
    entries = choice.logprobs.content if choice.logprobs else []
    return [entry.logprob for entry in entries]


def _flat(choice: Any) -> list[float]:
    """Read a field that the SDK's models do not declare."""
    return list(choice.model_extra.get("token_logprobs", []))


def _of_completion(choice: Any) -> list[float]:
    return list(choice.logprobs.token_logprobs) if choice.logprobs else []


def _added_up(answers: Any, logprobs_of: Read) -> list[Any]:
    """Return the prompt's IDs, the completion's and its logprobs in all answers."""
    prompt = None
    token_ids: list[int] = []
    logprobs: list[float] = []
    for answer in answers:
        prompt = getattr(answer, "prompt_token_ids", prompt)
        for choice in answer.choices:
            # A completion's choice has the prompt's IDs.
            prompt = getattr(choice, "prompt_token_ids", prompt)
            token_ids += getattr(choice, "token_ids", None) or []
            logprobs += logprobs_of(choice)
    return [prompt, token_ids, logprobs]


def _ways(
    name: str, create: Any, asked: Any, read: Read, ending: str = ""
) -> dict[str, Any]:
    added_up = ending or ", chunks added up"
    return {
        f"{name}.create(){ending}": _added_up([create(**asked)], read),
        f"{name}.create(stream=True){added_up}": _added_up(
            create(**asked, stream=True), read
        ),
    }


def read(task: dict[str, Any]) -> dict[str, Any]:
    client = openai.OpenAI(
        base_url=f"{task['base_url']}/v1", api_key="none", max_retries=0
    )
    name, chat = "chat.completions", client.chat.completions
    asked: Any = {**OPTIONS, "messages": task["messages"]}
    with_logprobs = {**asked, "logprobs": True}
    found = _ways(name, chat.create, with_logprobs, _of_entries)
    with chat.stream(**with_logprobs) as stream:
        final = stream.get_final_completion()
    found[f"{name}.stream(), get_final_completion()"] = _added_up([final], _of_entries)
    if task["completions"]:
        flat = {**asked, "extra_body": {"return_token_logprobs": True}}
        found |= _ways(name, chat.create, flat, _flat, ", token_logprobs")
        prompt = {**OPTIONS, "prompt": task["prompt"], "logprobs": 1}
        prompt["extra_body"] = {"return_token_ids": True}
        create = client.completions.create
        found |= _ways("completions", create, prompt, _of_completion)
    return found
