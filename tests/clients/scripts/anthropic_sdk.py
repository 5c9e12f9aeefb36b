"""Print the fields that the `anthropic` SDK reads from `/v1/messages`."""

from __future__ import annotations

from typing import Any

import anthropic

ATTRIBUTES = ("prompt_token_ids", "token_ids", "token_logprobs")


def read(task: dict[str, Any]) -> dict[str, Any]:
    client: Any = anthropic.Anthropic(
        base_url=task["base_url"], api_key="none", max_retries=0
    )
    asked: Any = {
        "model": "default",
        "max_tokens": 400,
        "messages": task["messages"],
        # The SDK has no `temperature`; the server takes it from the body.
        "extra_body": {"return_token_ids": True, "temperature": 0},
    }
    whole = client.messages.create(**asked)
    prompt = None
    token_ids: list[int] = []
    logprobs: list[float] = []
    for event in client.messages.create(**asked, stream=True):
        if event.type == "message_start":
            prompt = event.message.prompt_token_ids
        token_ids += getattr(event, "token_ids", None) or []
        logprobs += getattr(event, "token_logprobs", None) or []
    with client.messages.stream(**asked) as stream:
        final = stream.get_final_message()
    kept = (getattr(final, name, None) for name in ATTRIBUTES)
    return {
        "messages.create()": [getattr(whole, name) for name in ATTRIBUTES],
        "messages.create(stream=True), events added up": [prompt, token_ids, logprobs],
        "messages.stream(), get_final_message()": [*kept],
    }
