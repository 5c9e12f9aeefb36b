"""Print what verifiers 0.1's token client keeps of two turns, and their messages."""

from __future__ import annotations

import asyncio
from typing import Any

from openai import AsyncOpenAI
from verifiers.clients.openai_chat_completions_token_client import (
    OpenAIChatCompletionsTokenClient,
)
from verifiers.types import AssistantMessage, UserMessage


async def _turns(task: dict[str, Any]) -> dict[str, Any]:
    openai = AsyncOpenAI(base_url=f"{task['base_url']}/v1", api_key="none")
    client: Any = OpenAIChatCompletionsTokenClient(openai)
    [message] = task["messages"]
    question = UserMessage(content=message["content"])
    state: dict[str, Any] = {"trajectory": [], "model": "default"}
    prompt: list[Any] = [question]
    read = {}
    for turn in ("first turn", "second turn"):
        response = await client.get_response(
            prompt=prompt,
            model="default",
            sampling_args={"temperature": 0, "max_tokens": 400},
            state=state,
        )
        tokens = response.message.tokens
        read[turn] = [
            tokens and tokens.prompt_ids,
            tokens and tokens.completion_ids,
            tokens and tokens.completion_logprobs,
            [message.model_dump(exclude_none=True) for message in prompt],
        ]
        answer = AssistantMessage(content=response.message.content)
        state["trajectory"].append(
            {
                "prompt": prompt,
                "completion": [answer],
                "response": response,
                "tokens": tokens
                and {
                    "prompt_ids": tokens.prompt_ids,
                    "completion_ids": tokens.completion_ids,
                },
            }
        )
        prompt = [*prompt, answer, question]
    return read


def read(task: dict[str, Any]) -> dict[str, Any]:
    return asyncio.run(_turns(task))
