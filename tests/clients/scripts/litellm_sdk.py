"""Print the fields that the `litellm` SDK reads from chat completions."""

from __future__ import annotations

from typing import Any

import litellm


def read(task: dict[str, Any]) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "model": "hosted_vllm/default",
        "api_base": f"{task['base_url']}/v1",
        "api_key": "none",
        "messages": task["messages"],
        "temperature": 0,
        "max_tokens": 400,
        "logprobs": True,
        "extra_body": {"return_token_ids": True},
    }
    whole: Any = litellm.completion(**asked)
    [choice] = whole.choices
    prompt = None
    token_ids: list[int] = []
    logprobs: list[float] = []
    for chunk in litellm.completion(**asked, stream=True):
        fields = getattr(chunk, "provider_specific_fields", None) or {}
        prompt = (
            getattr(chunk, "prompt_token_ids", None)
            or fields.get("prompt_token_ids")
            or prompt
        )
        for delta in chunk.choices:
            fields = getattr(delta, "provider_specific_fields", None) or {}
            token_ids += getattr(delta, "token_ids", None) or fields.get(
                "token_ids", []
            )
            given = getattr(delta, "logprobs", None)
            if given:
                logprobs += [entry.logprob for entry in given.content]
    fields = getattr(choice, "provider_specific_fields", None) or {}
    return {
        "completion()": {
            "prompt": getattr(whole, "prompt_token_ids", None),
            "token_ids": fields.get("token_ids"),
            "logprobs": [entry.logprob for entry in choice.logprobs.content],
        },
        "completion(stream=True), chunks added up": {
            "prompt": prompt,
            "token_ids": token_ids,
            "logprobs": logprobs,
        },
    }
